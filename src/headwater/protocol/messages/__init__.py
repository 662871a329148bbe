"""Requests and responses: one module an API, loaded when the API is first used."""
