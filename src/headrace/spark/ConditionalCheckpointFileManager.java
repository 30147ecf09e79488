package headrace;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Writes the files of a checkpoint into S3: each is put once it is whole, and one that is to be the first only where none
 * is. Spark's own managers rename, or look before they put, so that of two drivers both can be the first. Elsewhere, as in
 * the directory of a files sink, it is Spark's usual one.
 */
public class ConditionalCheckpointFileManager extends FileSystemBasedCheckpointFileManager {
  private final Configuration conf;
  private final CheckpointFileManager usual;

  public ConditionalCheckpointFileManager(Path path, Configuration conf) {
    super(path, conf);
    this.conf = conf;
    this.usual = "s3a".equals(path.toUri().getScheme()) ? null : new FileContextBasedCheckpointFileManager(path, conf);
  }

  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
    if (usual != null) {
      return usual.createAtomic(path, overwrite);
    }
    try {
      return Put.of(path.getFileSystem(conf), path, overwrite);
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  private static final class Put extends CheckpointFileManager.CancellableFSDataOutputStream {
    private static final String HEADER = "headrace-writer";
    private final FSDataOutputStream whole;
    private final FileSystem files;
    private final Path path;
    private final String mark;
    private boolean over = false;

    private Put(FSDataOutputStream whole, FileSystem files, Path path, String mark) {
      super(whole);
      this.whole = whole;
      this.files = files;
      this.path = path;
      this.mark = mark;
    }

    static Put of(FileSystem files, Path path, boolean overwrite) throws IOException {
      String mark = UUID.randomUUID().toString();
      FSDataOutputStreamBuilder builder = files.createFile(path);
      builder.create();
      builder.recursive();
      builder.overwrite(true);
      if (overwrite) {
        // No question whether a directory has that name: Spark gives none to both.
        builder.opt("fs.s3a.create.performance", "true");
      } else {
        builder.must("fs.option.create.conditional.overwrite", "true");
        builder.opt("fs.s3a.create.header." + HEADER, mark);
      }
      return new Put((FSDataOutputStream) builder.build(), files, path, overwrite ? null : mark);
    }

    public synchronized void cancel() {
      if (!over) {
        over = true;
        whole.abort();
      }
    }

    public synchronized void close() throws IOException {
      if (over) {
        return;
      }
      over = true;
      try {
        whole.close();
      } catch (IOException error) {
        if (mark == null || !isTaken(error)) {
          throw error;
        }
        // A put whose answer was lost is made again, and finds itself there.
        if (!isMine()) {
          throw new FileAlreadyExistsException("another driver has written " + path);
        }
      }
    }

    private static boolean isTaken(Throwable error) {
      for (Throwable each = error; each != null; each = each.getCause()) {
        String text = String.valueOf(each.getMessage());
        if (each instanceof FileAlreadyExistsException
            || text.indexOf("412") >= 0
            || text.indexOf("409") >= 0) {
          return true;
        }
      }
      return false;
    }

    private boolean isMine() throws IOException {
      try {
        byte[] found = files.getXAttr(path, "header." + HEADER);
        return found != null && mark.equals(new String(found, "UTF-8"));
      } catch (FileNotFoundException error) {
        return false;
      }
    }
  }
}
