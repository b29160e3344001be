# The server with its embedded model:
#
#   docker build -t kime-grpc .
#   docker run --rm -p 50051:50051 kime-grpc
#
# For an image without CUDA, name an index that has CPU builds of torch: --build-arg TORCH_INDEX_URL=...

FROM python:3.11-slim AS build
ARG TORCH_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/kime
WORKDIR /src
COPY . .
RUN /opt/kime/bin/pip install ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} \
    -c constraints.txt ./kime_mini '.[server]'

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 kime
COPY --from=build /opt/kime /opt/kime
USER 10001
ENV PATH=/opt/kime/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 50051
# Healthy once the warm-up decision has been answered; unhealthy while the server drains.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", "\
import grpc\n\
from grpc_health.v1 import health_pb2, health_pb2_grpc\n\
stub = health_pb2_grpc.HealthStub(grpc.insecure_channel('127.0.0.1:50051'))\n\
answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=4)\n\
raise SystemExit(answer.status != health_pb2.HealthCheckResponse.SERVING)"]
ENTRYPOINT ["kime-grpc", "serve", "--host", "0.0.0.0"]
