"""Handlers of the controller listener: one file an API, each with `handle(role, context, request)`.

An API that brokers hand on to the controller also has `refuse(context, request, refusal)`: the
response that refuses everything in the request. A broker uses it where it reaches no controller.
"""
