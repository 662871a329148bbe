"""One file an API, named after it, each with one `handle(broker, context, request)`."""
