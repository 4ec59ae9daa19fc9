"""Messages and requests as LINE's Messaging API takes them: checked before they are sent.

It imports nothing of linedesk or linesim, which both use it.
"""

from linemessages.check import check_messages as check_messages
from linemessages.check import check_request as check_request
from linemessages.finding import Finding as Finding
from linemessages.text import clusters as clusters
from linemessages.text import units as units
