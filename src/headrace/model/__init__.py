"""What was declared: frozen values that know their file and line, without I/O."""

from headrace.model.project import (
    Counter,
    Project,
    PythonTransform,
    Query,
    Source,
    SqlTransform,
    Table,
    Target,
    Transform,
    View,
    Watermark,
)
from headrace.model.trigger import TRIGGERS, AvailableNow, Continuous, Default, Every, Once, RealTime, Trigger
from headrace.units import Duration

__all__ = [
    "TRIGGERS",
    "AvailableNow",
    "Continuous",
    "Counter",
    "Default",
    "Duration",
    "Every",
    "Once",
    "Project",
    "PythonTransform",
    "Query",
    "RealTime",
    "Source",
    "SqlTransform",
    "Table",
    "Target",
    "Transform",
    "Trigger",
    "View",
    "Watermark",
]
