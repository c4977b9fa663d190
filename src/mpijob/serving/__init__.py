"""One small base for everything of ours that listens: the page, the webhook, the fit broker, health and metrics.

`connections` bounds who may connect and how long a request may take, `concurrency` who is served first, `server` runs an
application beside what else a process does, `service` is the application of a small one. The web framework
(starlette, uvicorn) is used here and in `api`, and nowhere else.
"""
