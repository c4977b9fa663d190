"""The common base of all our servers: web UI, admission webhook, capacity broker, health and metrics.

`connections` limits connections and request times, `concurrency` the requests served at once, `server` runs
an application in a thread, `service` is the application of a small service. starlette and uvicorn are used
only here and in `api` (docs/decisions/0048).
"""
