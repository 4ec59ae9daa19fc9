"""The simulator as a process that waits a minute for the answer to a webhook, where LINE waits 2 s.

`python -m tests.linesim.patient http://127.0.0.1:4001/`
"""

import logging
import sys

from linesim import serve

logging.basicConfig(level=logging.INFO)
sys.exit(
    serve(
        secret="s3cret",
        token="t0ken",
        host="127.0.0.1",
        port=0,
        webhook_url=sys.argv[1],
        webhook_timeout_seconds=60.0,
    )
)
