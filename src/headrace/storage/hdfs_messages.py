"""What HDFS says while a NameNode or a DataNode is away or has just been started, by WebHDFS and by Hadoop's client.

Sources: FSNamesystem and BlockManager of the NameNode; DataStreamer, DFSOutputStream and DFSInputStream of the client.
"""

from __future__ import annotations

PASSING = (
    # The NameNode: it starts, is the one that stands by, or has too much to do.
    *("safe mode", "safemode", "startup mode", "StandbyException", "in state standby", "RetriableException"),
    "Server too busy",
    # No DataNode takes a block: the only one is away, or has not yet registered again.
    *("could only be written to 0 of", "could only be replicated to 0", "There are 0 datanode(s) running"),
    *("Unable to create new block", "Could not get block locations", "Failed to find datanode"),
    # A DataNode dies while a file is written.
    *("are bad. Aborting", "Failed to replace a bad datanode", "firstBadLink", "Not replicated yet"),
    "does not have enough number of replicas",
    # A DataNode dies while a file is read, or has not yet told which blocks it has.
    *("nodes contain this block", "Could not obtain block", "BlockMissingException", "Could not reach the block"),
    "Cannot obtain block length",
)
