"""The page's server: REST and streams over the client, and the built page itself.

A face like `cli`: it parses, asks the client, and answers. What a request may ask is a table (`routes`), who may
ask is decided in one place (`sessions`) before any of it is reached, and the OpenAPI document is made from the same
table (`openapi`). The page's own source is in `frontend/`.
"""
