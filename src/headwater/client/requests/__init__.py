"""Requests that several clients send, one module for each API.

`routing` finds the node that must answer and retries; each other module builds one API's request
and reads its response. The clients decide when to ask and what an error means to their users.
"""
