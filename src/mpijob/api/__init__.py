"""The HTTP server of the web UI: REST, event streams and the built page.

Requests are parsed, passed to the client, and answered. Routes are a table (`routes`), authentication is in
one place (`auth`) before any handler, and the OpenAPI document is generated from the same table (`openapi`).
The source of the page is in `frontend/`.
"""
