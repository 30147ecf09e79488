"""What was declared: frozen values that know their file and line, without I/O."""

from headrace.model.project import Counter as Counter
from headrace.model.project import Loaded as Loaded
from headrace.model.project import NamedSource as NamedSource
from headrace.model.project import Project as Project
from headrace.model.project import PythonTransform as PythonTransform
from headrace.model.project import Query as Query
from headrace.model.project import QuerySettings as QuerySettings
from headrace.model.project import SqlTransform as SqlTransform
from headrace.model.project import Table as Table
from headrace.model.project import Target as Target
from headrace.model.project import Transform as Transform
from headrace.model.project import View as View
from headrace.model.project import Watermark as Watermark
from headrace.model.trigger import TRIGGERS as TRIGGERS
from headrace.model.trigger import AvailableNow as AvailableNow
from headrace.model.trigger import Continuous as Continuous
from headrace.model.trigger import Default as Default
from headrace.model.trigger import Every as Every
from headrace.model.trigger import Once as Once
from headrace.model.trigger import RealTime as RealTime
from headrace.model.trigger import Trigger as Trigger
from headrace.units import Duration as Duration
