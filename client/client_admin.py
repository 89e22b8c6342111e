"""What `Client.admin` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.cohort_admin import CohortAdmin
from ringfence.layout_admin import LayoutAdmin
from ringfence.parked_admin import ParkedAdmin

if TYPE_CHECKING:
    from ringfence.admin import Admin
    from ringfence.client import Client


class ClientAdmin(LayoutAdmin, CohortAdmin, ParkedAdmin):
    """Changes of layouts, cohorts, and parked rows."""

    def __init__(self, client: Client, admin: Admin) -> None:
        LayoutAdmin.__init__(self, admin)
        CohortAdmin.__init__(self, client, admin)
        ParkedAdmin.__init__(self, client, admin)
