"""One small base for everything of ours that listens: the page, the webhook, the fit broker, health and metrics.

`connections` limits connections and request times, `concurrency` the requests served at once, `server` runs an
application in a thread, `service` is the application of a small one. The web framework
(starlette, uvicorn) is used here and in `api`, and nowhere else.
"""
