"""What the demo asks: a ticket, a mail, a record, a conversation, and a handful of messages in a stream."""

from __future__ import annotations

from kime_grpc.core.request import AnyQuestion, Choice, Noul, QuestionKey, Request, Score

REQUESTS: dict[str, Request] = {
    "A support ticket": Request(
        "Since this morning's update the app crashes every time I open a project. We have a demo at noon and "
        "nobody can work. Please help as soon as you can, this is urgent!",
        {
            "team": Choice(
                "Which team should handle this ticket?",
                {
                    "billing": "payments, invoices, refunds",
                    "technical": "bugs, crashes, errors",
                    "sales": "new orders, prices, upgrades",
                },
            ),
            "urgency": Score(
                "How urgent is the ticket?", ["not urgent", "somewhat urgent", "urgent", "critical"]
            ),
            "refund": Noul("The customer asks for a refund."),
        },
    ),
    "A mail": Request(
        "From: IT service <it-service@account-verify.example>\n"
        "Subject: Your mailbox will be closed\n\n"
        "Dear user, your password expires today. Confirm your password within 24 hours at "
        "http://account-verify.example/login or your mailbox will be deleted.",
        {
            "kind": Choice("What kind of mail is this?", ["personal", "newsletter", "invoice", "phishing"]),
            "danger": Score("How dangerous is this mail?", ["harmless", "suspicious", "dangerous"]),
            "password": Noul("The mail asks for a password."),
        },
    ),
    "A record, as JSON": Request(
        {
            "order": 4711,
            "customer": "Ana",
            "payment": {"status": "failed", "attempts": 3},
            "items": [{"sku": "KB-1", "qty": 2}],
            "shipped": False,
        },
        {
            "payment": Choice("What is the status of the payment?", ["paid", "pending", "failed"]),
            "failed": Noul("The payment failed."),
        },
    ),
    "A conversation": Request(
        [
            {"role": "user", "content": "I ordered a blue jacket and got a red one. I am really annoyed."},
            {"role": "agent", "content": "I am sorry! I will send you the blue one today."},
            {"role": "user", "content": "That is great, thank you so much for your help!"},
        ],
        {
            "problem": Choice(
                "What went wrong?",
                ["the wrong product came", "it came too late", "it was too expensive"],
            ),
            "mood": Score(
                "How happy is the customer now?",
                ["very unhappy", "unhappy", "neutral", "happy", "very happy"],
            ),
            "cancel": Noul("The customer wants to cancel."),
        },
    ),
}

STREAM_QUESTIONS: dict[QuestionKey, AnyQuestion] = {
    "topic": Choice("What is this about?", ["delivery", "product", "account", "payment", "sales"]),
    "sentiment": Choice("What is the sentiment?", ["negative", "neutral", "positive"]),
}

MESSAGES = (
    "The package arrived two days late and the box was crushed.",
    "Best coffee machine I ever had, five stars!",
    "How do I reset my password?",
    "I was charged twice this month.",
    "I'd like to order 200 more seats for our team.",
    "Where is my parcel? It should have been here on Monday.",
)
