"""The catalogue of findings: each code with its title, its severity and whether it passes by itself.

`docs/reference/findings.md` takes its headings from here (`make docs`) and holds what there is to say about each code.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]
# A connector of another distribution has codes of its own, in another form than these.
OURS = re.compile(r"HR\d{3}")
NOTE: tuple[Severity, ...] = ("note",)
WARNING: tuple[Severity, ...] = ("warning",)
# For errors of other code, such as the user's functions, the words of the message decide.
Passes = Literal["soon", "always", "by its words", "never"]
# By the next attempt, so that a query whose trigger ends is started again too.
SOON: Passes = "soon"
ALWAYS: Passes = "always"
BY_WORDS: Passes = "by its words"

# The words by which faults of others are known to pass by themselves, as a connection that was refused.
# What HDFS says while a NameNode or a DataNode is away or has just been started, by WebHDFS and by Hadoop's client.
# Sources: FSNamesystem, BlockManager (NameNode); DataStreamer, DFSOutputStream, DFSInputStream (client).
OF_HDFS = (
    # The NameNode: it starts, is the one that stands by, or has too much to do.
    *("safe mode", "safemode", "startup mode", "StandbyException", "in state standby", "RetriableException"),
    "Server too busy",
    # No DataNode takes a block: the only one is away, or has not yet registered again.
    *("could only be written to 0 of", "could only be replicated to 0", "There are 0 datanode(s) running"),
    *("Unable to create new block", "Could not get block locations", "Failed to find datanode"),
    # A DataNode dies while a file is written.
    *("are bad. Aborting", "Failed to replace a bad datanode", "firstBadLink", "Not replicated yet"),
    "does not have enough number of replicas",
    # A DataNode dies while a file is read, or has not yet reported its blocks.
    *("nodes contain this block", "Could not obtain block", "BlockMissingException", "Could not reach the block"),
    "Cannot obtain block length",
)

_WORDS = re.compile(
    r"time[d]?[ -]?out|connection (?:was |is )?(?:refused|reset|aborted|closed|lost|timed out)|broken pipe|"
    r"could ?n[o']t connect|(?:no route|unknown|unreachable) host|network is unreachable|name resolution|"
    r"temporar(?:y|ily)|try again|too many (?:requests|connections)|service unavailable|bad gateway|slow ?down|"
    r"end of file exception between|failed to respond|"
    r"\b(?:429|502|503|504)\b|(?:Connection|Timeout|ConnectTimeout|ReadTimeout|ConnectionReset|ConnectionRefused)"
    r"(?:Error|Exception)|" + "|".join(map(re.escape, OF_HDFS)),
    re.IGNORECASE,
)


def has_passing_words(text: str) -> bool:
    """Whether it speaks of what passes by itself."""
    return bool(_WORDS.search(text))


class Code(NamedTuple):
    """What a code stands for. `severities` holds those that a finding may have; the first is the default.

    passes: whether it is a fault outside that a later start can find gone without a correction.
    refuses: whether it lies in the project: a declaration, a query that Spark cannot run as a stream, an option, a
    change that the checkpoint does not allow. What others can bring while the application waits does not: a directory,
    a topic, a right, a secret's file, a variable of the service; nor does what damages a checkpoint or a sink.
    """

    code: str
    title: str
    severities: tuple[Severity, ...] = ("error",)
    passes: Passes = "never"
    refuses: bool = False


# Some 300 codes; a new one takes the next free number of its range.
CODES = (
    Code("HR001", "there is no Java that Spark runs on"),
    Code("HR003", "there is no CDS archive that fits", NOTE),
    Code("HR011", "a connector or its package is not installed", ("error", "warning")),
    Code("HR012", "the jars of a connector are missing", passes=BY_WORDS),
    Code("HR013", "the machine is short of what a run needs", WARNING),
    Code("HR014", "the file system cannot do what the storage needs"),
    Code("HR090", "the command line is not understood"),
    Code("HR091", "there is no query, target or log of that name", refuses=True),
    Code("HR093", "the project cannot be written there"),
    Code("HR095", "the driver of the demo was lost"),
    Code("HR100", "there is no project here"),
    Code("HR101", "a file of the project cannot be read", refuses=True),
    Code("HR103", "a key, an option or a connector is not known", ("error", "warning"), refuses=True),
    Code("HR104", "a value has the wrong form", refuses=True),
    Code("HR105", "a variable is not set"),
    Code("HR109", "a name or a key is given twice", refuses=True),
    Code("HR112", "an option or a part of a declaration is missing", refuses=True),
    Code("HR113", "an option has a wrong value", ("error", "warning"), refuses=True),
    Code("HR114", "a Python file of the project cannot be loaded, or takes long", ("error", "note"), refuses=True),
    Code("HR115", "a file that the project needs cannot be read"),
    Code("HR116", "this is not a single SELECT", refuses=True),
    Code("HR117", "a parameter names no input", refuses=True),
    Code("HR121", "a file starts or loads its own project", refuses=True),
    Code("HR122", "nothing is there to start a query", refuses=True),
    Code("HR123", "a schema cannot be read", refuses=True),
    Code("HR125", "a setting of Spark or a master is wrong", refuses=True),
    Code("HR126", "no master of the cluster answers", passes=ALWAYS),
    Code("HR127", "Spark cannot be started", passes=BY_WORDS),
    Code("HR128", "the project declares no query", refuses=True),
    Code("HR131", "where a first start begins", NOTE),
    Code("HR140", "a jar that was not installed lies between those of a connector", WARNING),
    Code("HR141", "others may read a secret, or change what the storage holds", WARNING),
    Code("HR203", "two streams are joined without a time bound", refuses=True),
    Code("HR204", "an input is not declared", refuses=True),
    Code("HR210", "the query's function failed", refuses=True),
    Code("HR211", "the function returned no DataFrame", refuses=True),
    Code("HR213", "a stream was counted, shown, collected or started", refuses=True),
    Code("HR214", "a column does not exist, or two have its name", refuses=True),
    Code("HR215", "a table or view does not exist"),
    Code("HR216", "the SQL cannot be parsed", refuses=True),
    Code("HR218", "a type does not fit", refuses=True),
    Code("HR219", "a source that counts its rows or takes its files away is read in two places", refuses=True),
    Code("HR220", "Spark refuses the query", refuses=True),
    Code("HR221", "the operation needs a watermark", refuses=True),
    Code("HR223", "a stream cannot be limited, sorted or sampled", refuses=True),
    Code("HR226", "a stream has no such aggregate or window", refuses=True),
    Code("HR227", "the query's operators do not go together in its output mode", refuses=True),
    Code("HR228", "this kind of join is not possible between a stream and this side", refuses=True),
    Code("HR231", "a stream and a batch input are united", refuses=True),
    Code("HR240", "state grows without bound", ("warning", "note")),
    Code("HR241", "the query is not deterministic", ("warning", "note")),
    Code("HR251", "views or tables read each other in a circle", refuses=True),
    Code("HR252", "a query reads no source", refuses=True),
    Code("HR253", "a table reads a source", refuses=True),
    Code("HR254", "a name cannot be used", refuses=True),
    Code("HR255", "the sink does not take the query's output mode", refuses=True),
    Code("HR256", "something is read by no query", NOTE),
    Code("HR257", "the trigger once is deprecated", WARNING),
    Code("HR259", "two queries write to the same place", ("error", "warning"), refuses=True),
    Code("HR261", "the trigger does not go with the query", refuses=True),
    Code("HR263", "rows may come twice", NOTE),
    Code("HR264", "too few cores for a continuous query", refuses=True),
    Code("HR266", "progress cannot be written asynchronously", refuses=True),
    Code("HR267", "a query reads what it writes", refuses=True),
    Code("HR268", "late rows cannot be kept so", refuses=True),
    Code("HR271", "the watermark cleans no state of an aggregation", ("note", "warning", "error"), refuses=True),
    Code("HR274", "the policy for several watermarks cannot be this", refuses=True),
    Code("HR275", "how long a join keeps each side", NOTE),
    Code("HR276", "rows without a match come out later, or never", ("note", "warning")),
    Code("HR277", "a stream is grouped by several sets of columns at once", refuses=True),
    Code("HR278", "the rows of a stream are taken as a set", refuses=True),
    Code("HR279", "an operator with state gets two event-time columns", refuses=True),
    Code("HR280", "a join of two streams takes NULL for a key", WARNING),
    Code("HR283", "transformWithState needs RocksDB", refuses=True),
    Code("HR284", "an initial state is a stream", refuses=True),
    Code("HR285", "an option of the state store has a wrong value", refuses=True),
    Code("HR286", "an option of the state store has no effect", refuses=True),
    Code("HR289", "a state has a time to live without processing time", refuses=True),
    Code("HR292", "a table cannot be refreshed while the query runs", refuses=True),
    Code("HR296", "a join of two streams lets go of rows too early", ("error", "warning"), refuses=True),
    Code("HR297", "changes cannot be applied row by row", ("error", "warning"), refuses=True),
    Code("HR298", "the sink cannot apply changes", refuses=True),
    Code("HR299", "changes have no order", refuses=True),
    Code("HR302", "a row or a message does not fit the schema"),
    Code("HR303", "a file of the batch is gone"),
    Code("HR304", "a file cannot be read"),
    Code("HR305", "rows were rejected", WARNING),
    Code("HR308", "a file's columns do not fit the schema"),
    Code("HR310", "key=value directories do not fit"),
    Code("HR319", "the server of a socket source has closed the connection", WARNING),
    Code("HR320", "a source gives only what comes while the query runs", refuses=True),
    Code("HR323", "a source's class in Python failed", passes=BY_WORDS),
    Code("HR325", "text is of another encoding"),
    Code("HR326", "a file changed after it was read", ("error", "warning")),
    Code("HR331", "the system of a source does not answer", passes=ALWAYS),
    Code("HR332", "what a source is to read does not exist"),
    Code("HR337", "rows may be missed silently", WARNING),
    Code("HR343", "messages, versions or snapshots are gone"),
    Code("HR344", "rows of a table were changed or deleted"),
    Code("HR345", "the columns of a Delta table have changed"),
    Code("HR346", "a topic or a table was deleted and created again"),
    Code("HR347", "a system gives no ids of what is read", NOTE),
    Code("HR348", "an open transaction holds messages back", WARNING),
    Code("HR349", "the log of a Delta table cannot be read"),
    Code("HR355", "an Iceberg table cannot be read"),
    Code("HR360", "files are left out and never read", WARNING),
    Code("HR361", "a value would be changed"),
    Code("HR362", "a message is not a change of a table"),
    Code("HR363", "the columns of a source's table have changed"),
    Code("HR402", "the sink cannot be read back"),
    Code("HR403", "the sink cannot do this in the query's output mode", refuses=True),
    Code("HR404", "a column of the result does not fit the sink", refuses=True),
    Code("HR405", "the sink cannot be reached or written", passes=ALWAYS),
    Code("HR406", "the table that is there does not fit the result"),
    Code("HR407", "the table belongs to something else"),
    Code("HR408", "a row of the result does not fit the sink"),
    Code("HR409", "another driver runs the same query"),
    Code("HR410", "the checkpoint and the sink hold different batches"),
    Code("HR411", "a batch is tried again", WARNING, passes=ALWAYS),
    Code("HR412", "rows were rejected into the sink's quarantine", WARNING),
    Code("HR414", "the database refuses the user, a right or the connection"),
    Code("HR415", "what a source or a sink is to call is not callable", refuses=True),
    Code("HR416", "an object cannot be sent to Spark's workers", refuses=True),
    Code("HR417", "the code that a foreach sink calls failed", passes=BY_WORDS),
    Code("HR419", "no table of that name can be written by a stream"),
    Code("HR420", "a setting of the database or of a pooler does not let it keep the result", refuses=True),
    Code("HR421", "a batch's files of the checkpoint cannot be brought to the disk", passes=ALWAYS),
    Code("HR422", "the database wants a primary key, and the result has none", refuses=True),
    Code("HR425", "a sink refuses a batch"),
    Code("HR432", "a connector does not extend the contract", refuses=True),
    Code("HR433", "what a source has given cannot be read again"),
    Code("HR434", "Kafka does not take a batch as one transaction"),
    Code("HR440", "a row breaks a rule of the table"),
    Code("HR441", "other writers change the table all the time", passes=ALWAYS),
    Code("HR446", "this version of Spark is not supported"),
    Code("HR459", "lost entries of the checkpoint were written again", WARNING),
    Code("HR460", "Spark has no such function, or it takes other arguments", refuses=True),
    Code("HR461", "columns, aggregates and GROUP BY do not fit together", refuses=True),
    Code("HR463", "a time or a length of time is not written as Spark reads it", refuses=True),
    Code("HR464", "the project was moved and has not run at its new place"),
    Code("HR469", "a sink could not be asked", WARNING, passes=BY_WORDS),
    Code("HR480", "a start waits for the lock of another session", WARNING),
    Code("HR482", "nothing secures the connection to a database", NOTE),
    Code("HR483", "a fetched jar is not the one that is known"),
    Code("HR484", "jars are fetched without comparing a sum", NOTE),
    Code("HR503", "a file of the checkpoint is missing or damaged"),
    Code("HR504", "the offsets of a batch are missing", WARNING),
    Code("HR505", "the commit of a batch is missing", NOTE),
    Code("HR507", "a file of the checkpoint is of a newer version"),
    Code("HR509", "the log of a source lacks an entry"),
    Code("HR510", "a batch of the sink is not in the checkpoint"),
    Code("HR511", "earlier batches are known neither to the checkpoint nor to the archive"),
    Code("HR512", "the checkpoint numbers its sources"),
    Code("HR514", "offsets that the next start needs are missing"),
    Code("HR516", "a file of the state is missing or damaged"),
    Code("HR518", "a file of the checkpoint or the state cannot be read while running"),
    Code("HR522", "batches were purged before they were archived", WARNING),
    Code("HR523", "the archive cannot be read", ("error", "warning")),
    Code("HR524", "the project was moved", NOTE),
    Code("HR525", "a source or sink lies elsewhere"),
    Code("HR526", "the query is running"),
    Code("HR527", "the state is missing"),
    Code("HR531", "the history is damaged, or of a newer version", WARNING),
    Code("HR534", "there is no history yet", NOTE),
    Code("HR535", "a change would mix two meanings in the state or the result", refuses=True),
    Code("HR536", "a change does not fit the checkpoint", refuses=True),
    Code("HR537", "a change that only rows from now on follow was not accepted", refuses=True),
    Code("HR538", "a query has changed and resumes", NOTE),
    Code("HR539", "what a query was cannot be read"),
    Code("HR540", "the storage directory cannot be read or written", ("error", "warning")),
    Code("HR541", "no space is left on the disk", ("error", "warning"), passes=ALWAYS),
    Code("HR544", "a history, a log or another record cannot be written", WARNING),
    Code("HR545", "the query was changed", WARNING),
    Code("HR547", "a query looks like another one renamed", refuses=True),
    Code("HR549", "a rename cannot be made"),
    Code("HR550", "the state is kept by another provider", refuses=True),
    Code("HR551", "a setting of the checkpoint stays in force", WARNING),
    Code("HR559", "what a rename takes over", NOTE),
    Code("HR560", "a table has changed", NOTE),
    Code("HR561", "a table could not be computed", ("error", "warning"), passes=BY_WORDS),
    Code("HR562", "a table has other columns", ("error", "warning")),
    Code("HR563", "a version of a table is gone", ("error", "warning")),
    Code("HR567", "a query is not the same over an older version of a table"),
    Code("HR571", "a rebuild is in the way"),
    Code("HR573", "a change has ended before its last step"),
    Code("HR574", "the sources no longer hold what a query has read"),
    Code("HR580", "a change of a query is refused"),
    Code("HR581", "a change of a query was cut off"),
    Code("HR582", "there is nothing to change", NOTE),
    Code("HR583", "a change cannot be undone"),
    Code("HR584", "a record of the storage cannot be read"),
    Code("HR585", "the storage does not say which query is which"),
    Code("HR587", "a result cannot be moved"),
    Code("HR588", "a batch or its state cannot be shown"),
    Code("HR590", "a checkpoint cannot be adopted"),
    Code("HR591", "a batch of the former job is planned and not committed"),
    Code("HR592", "the sources of an adopted checkpoint are not those of the query"),
    Code("HR594", "the state of an adopted checkpoint is not that of the query"),
    Code("HR596", "a result cannot be taken over"),
    Code("HR599", "the former job may still run", ("error", "warning")),
    Code("HR601", "a query failed", passes=BY_WORDS),
    Code("HR604", "Spark ran out of memory"),
    Code("HR607", "a Python worker of Spark died", passes=ALWAYS),
    Code("HR608", "a Python worker of Spark did not start in time", passes=SOON),
    Code("HR640", "the query asks for the time of the batch", NOTE),
    Code("HR641", "the result depends on the order of rows", NOTE),
    Code("HR643", "a setting of Spark is changed while the query is built", WARNING),
    Code("HR644", "a value is frozen when the query starts", WARNING),
    Code("HR645", "the function of a query changes a variable", WARNING),
    Code("HR646", "very many small files", NOTE),
    Code("HR647", "the state takes most of the memory", WARNING),
    Code("HR650", "several forms of the query made the result", NOTE),
    Code("HR660", "a plan cannot be applied"),
    Code("HR663", "a file cannot be written there"),
    Code("HR664", "what a Python function does was not compared", NOTE),
    Code("HR680", "a query falls behind", WARNING),
    Code("HR681", "the state of a query keeps growing", WARNING),
    Code("HR682", "rows were dropped as late", ("note", "warning")),
    Code("HR683", "late rows are not written yet", WARNING),
    Code("HR684", "an input without new rows holds the watermark back", WARNING),
    Code("HR685", "rows have no event time", WARNING),
    Code("HR686", "a row moved the watermark past the clock", WARNING),
    Code("HR687", "a result differs from its batch query, as another run does", WARNING),
    Code("HR690", "a query can drop no row as late", NOTE),
    Code("HR691", "late rows cannot be applied to this result"),
    Code("HR692", "the result to be corrected is not right"),
    Code("HR693", "the sink changed while late rows or a repair were applied"),
    Code("HR701", "nothing has been committed yet"),
    Code("HR702", "a source does not keep what it has given"),
    Code("HR704", "the sink has lost batches that were committed"),
    Code("HR706", "what the result must hold cannot be determined from outside", NOTE),
    Code("HR709", "rows of the answer share the sink's key"),
    Code("HR710", "the function builds another query for a batch"),
    Code("HR711", "the sink's columns are not those of the query"),
    Code("HR712", "the sink does not hold the batch answer"),
    Code("HR713", "the batch query failed"),
    Code("HR714", "the sink cannot be read"),
    Code("HR715", "the query cannot be run again over its batches"),
    Code("HR716", "no row of the result can have that key"),
    Code("HR717", "a query could not be verified during its run", WARNING),
    Code("HR720", "rows that a test gives or expects do not fit"),
    Code("HR721", "a test names what its query has not, or cannot be run so"),
    Code("HR722", "the query has no batch form"),
    Code("HR723", "nothing was tested"),
    Code("HR724", "no case can be recorded of the query"),
    Code("HR800", "a SELECT reads a broadcast or a counter", refuses=True),
    Code("HR801", "a counter cannot add", refuses=True),
    Code("HR802", "a counter is used on the driver", refuses=True),
    Code("HR806", "batches are not in the counters", WARNING),
    Code("HR807", "a counter cannot be added up", ("error", "warning")),
    Code("HR810", "a function for rows changes a variable of the driver", WARNING),
    Code("HR820", "the record of the cluster cannot be read"),
    Code("HR821", "processes of the cluster do not come up"),
    Code("HR822", "there is no cluster"),
    Code("HR825", "the cluster gives no executor", passes=ALWAYS),
    Code("HR826", "the Python of a worker cannot run what it is sent"),
    Code("HR827", "the target names no cluster", refuses=True),
    Code("HR828", "the cluster runs no driver in Python", refuses=True),
    Code("HR829", "a path is on the driver's machine alone", refuses=True),
    Code("HR830", "cores have no state to work on", NOTE),
    Code("HR831", "the storage cannot be reached", ("error", "warning"), passes=ALWAYS),
    Code("HR833", "the storage refuses access", ("error", "warning")),
    Code("HR834", "the storage is of a kind that is not known", refuses=True),
    Code("HR836", "the bucket of the storage is not there"),
    Code("HR837", "the storage cannot keep one driver from writing over another"),
    Code("HR838", "a path is of a kind that cannot be used", refuses=True),
    Code("HR840", "a Delta table in a bucket has one writer", NOTE),
    Code("HR841", "attempts of a task share the state of a query", WARNING),
    Code("HR850", "nothing runs that could take the order"),
    Code("HR851", "an order was not carried out"),
    Code("HR852", "the running application does not understand a request"),
    Code("HR853", "a process has not ended, or does not answer"),
    Code("HR854", "a running application cannot take a change"),
    Code("HR856", "other terminals cannot reach a run", WARNING),
    Code("HR857", "the archive of the workers' packages is missing, or cannot be made"),
    Code("HR859", "workers do not see the storage"),
    Code("HR861", "a query failed and starts again", WARNING),
    Code("HR863", "the cluster has forgotten the application"),
    Code("HR864", "a query waits for its source or sink", WARNING),
    Code("HR865", "new code did not start, and the former code runs again"),
    Code("HR866", "a deploy is done", NOTE),
    Code("HR873", "a hook is not declared rightly", ("error", "warning"), refuses=True),
    Code("HR875", "what observes a run did not get an event", WARNING),
    Code("HR877", "a service cannot be written so"),
    Code("HR880", "no batch is committed any more", WARNING),
    Code("HR881", "a source has fallen silent", WARNING),
    Code("HR882", "executors were lost", WARNING),
    Code("HR883", "the watermark stands although rows come", WARNING),
    Code("HR884", "the state of a query is over its budget", WARNING),
    Code("HR886", "where metrics or the dashboard are served", NOTE),
    Code("HR888", "an answer took too long, or too much memory"),
    Code("HR889", "a statement is not answered"),
    Code("HR891", "the dashboard could be read by others"),
    Code("HR892", "something cannot be served at that address"),
    Code("HR893", "the process of a query is gone"),
    Code("HR894", "what hung when a run was to stop now was broken off", WARNING),
    Code("HR895", "the user who is asked may do more than read"),
    Code("HR898", "OTLP or OpenLineage is not configured correctly"),
    Code("HR999", "an error was not foreseen"),
)
CATALOGUE = {code.code: code for code in CODES}


def passes(code: str, what: str) -> bool:
    """Whether a fault passes by itself; for codes of other distributions the words decide."""
    kind = CATALOGUE[code].passes if code in CATALOGUE else BY_WORDS
    return kind in (SOON, ALWAYS) or (kind == BY_WORDS and has_passing_words(what))


def passes_soon(code: str) -> bool:
    """Whether a fault of this code is mostly gone with the next attempt."""
    return code in CATALOGUE and CATALOGUE[code].passes == SOON


def refuses(code: str, what: str) -> bool:
    """Whether no start can succeed before the project is changed; the code of its functions may fail of what passes."""
    return code in CATALOGUE and CATALOGUE[code].refuses and not has_passing_words(what)


def severity_of(code: str) -> Severity:
    """Return the severity that a finding of this code has unless it says another."""
    return CATALOGUE[code].severities[0] if code in CATALOGUE else "error"


def objection(code: str, severity: Severity) -> str | None:
    """Return why no finding may have this code and this severity, or None."""
    if code not in CATALOGUE:
        return f"the catalogue has no code {code}" if OURS.fullmatch(code) else None
    severities = CATALOGUE[code].severities
    article = "an" if severity == "error" else "a"
    problem = f"{code} is not {article} {severity}; the catalogue has {' or '.join(severities)}"
    return None if severity in severities else problem
