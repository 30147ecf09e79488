"""How queries that use Kafka fail, known by words of the message."""

from __future__ import annotations

from headrace.contract import Failure

FAILURES = (
    Failure(
        code="HR335",
        pattern=r"HEADRACE_UNDECODABLE (?P<place>[^\s\"'.]\S*/\d+/\d+)",
        what="the value of the message {place} (topic/partition/offset) does not decode",
        fix="set on_bad_row to quarantine, and such messages are quarantined; or correct the schema and start again",
    ),
    Failure(
        code="HR336",
        pattern=r"KAFKA_DATA_LOSS|Some data may have been lost|Cannot fetch record for offset",
        what="messages of its topic were deleted before they were read",
        fix="reset the query (headrace reset QUERY), or set fail_on_data_loss to false to continue without them; let "
        "the topic keep more",
    ),
    Failure(
        code="HR332",
        pattern=r"UnknownTopicOrPartitionException|UnknownTopicIdException",
        what="a topic that it reads or writes is no longer there",
        fix="create the topic again, or correct its name, and start again",
    ),
    Failure(
        code="HR331",
        pattern=r"kafka\.common\.errors\.(?:TimeoutException|DisconnectException|NetworkException)|"
        r"Failed to construct kafka",
        what="the Kafka broker does not answer",
        fix="start the broker, then start again: the run resumes with the batch that was not committed",
    ),
)
