"""What a dispatcher's figures tell, on a pool that a test holds still."""

from __future__ import annotations
