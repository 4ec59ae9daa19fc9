"""The chat page: files read once and served from memory, by a policy to load nothing else."""

from collections.abc import Awaitable, Callable
from importlib import resources

from fastapi import APIRouter, Response

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def page_routes() -> APIRouter:
    """`/` is the page; what it loads lies under /page/."""
    router = APIRouter()
    for file in resources.files("linesim").joinpath("assets").iterdir():
        media_type = MEDIA_TYPES[file.name.rpartition(".")[2]]
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        router.add_api_route(path, _file(file.read_bytes(), media_type), methods=["GET"])
    return router


def _file(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def serve() -> Response:
        return Response(content, headers=HEADERS, media_type=media_type)

    return serve
