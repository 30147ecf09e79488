"""From files to the model: headrace.yml, Python modules, SQL files, the environment, targets."""

from headrace.load.modules import project_modules
from headrace.load.project import load

__all__ = ["load", "project_modules"]
