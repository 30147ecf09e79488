package headrace;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import java.io.IOException;
import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonParser;
import org.apache.spark.sql.catalyst.util.BadRecordException;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterable;
import scala.collection.immutable.Map;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;

/**
 * The row of a JSON text, by Spark's own parser over the bytes of the text; null of one that is not exactly one object of
 * the schema. Spark's from_json and its reader with an encoding parse characters, and rewrite numbers and objects where
 * the schema says STRING. All of them stop behind the first object, and put a question mark in the place of half a
 * surrogate pair; as its reader of lines does so in a stream, a text is judged like that if it is not strict.
 */
public final class JsonRows extends AbstractFunction1 implements Serializable {
  private final DataType schema;
  private final Map options;
  private final String zone;
  private final boolean isStrict;
  private transient JacksonParser parser;

  public JsonRows(DataType schema, Map options, String zone, Boolean isStrict) {
    this.schema = schema;
    this.options = options;
    this.zone = zone;
    this.isStrict = isStrict.booleanValue();
  }

  public Object apply(Object text) {
    byte[] bytes = (byte[]) text;
    if (isStrict && !isUnicode(bytes)) {
      return null;
    }
    if (parser == null) {
      JSONOptions parsed = new JSONOptions(options, zone, "");
      parser = new JacksonParser(schema, parsed, false, scala.collection.immutable.Nil$.MODULE$);
    }
    Opener opener = new Opener();
    try {
      Iterable rows = parser.parse(bytes, opener, new Nothing());
      return rows.size() == 1 && (opener.isWhole || !isStrict) ? rows.head() : null;
    } catch (Exception error) {
      if (error instanceof BadRecordException) {
        return null;
      }
      throw new IllegalStateException(error);
    }
  }

  /** As a plan shows it. */
  public String toString() {
    return "JsonRows(" + schema.json() + ")";
  }

  /** Whether bytes are UTF-8, as JSON has to be, and escape no half of a surrogate pair. */
  private static boolean isUnicode(byte[] bytes) {
    boolean isAscii = true;
    for (int at = 0; at < bytes.length; at++) {
      byte each = bytes[at];
      if (each < 0) {
        isAscii = false;
      } else if (each == '\\') {
        int unit = unit(bytes, at);
        if (unit >= 0xDC00 && unit <= 0xDFFF) {
          return false;
        }
        if (unit >= 0xD800 && unit <= 0xDBFF) {
          int low = unit(bytes, at + 6);
          if (low < 0xDC00 || low > 0xDFFF) {
            return false;
          }
          at += 6;
        }
        at++;
      } else if (each == 0 && at < 2) {
        // Jackson would take it for UTF-16 or UTF-32.
        return false;
      }
    }
    return isAscii || UTF8String.fromBytes(bytes).isValid();
  }

  /** The UTF-16 unit of an escape that begins at a place; -1 where there is none. */
  private static int unit(byte[] bytes, int at) {
    if (at + 5 >= bytes.length || bytes[at] != '\\' || bytes[at + 1] != 'u') {
      return -1;
    }
    int unit = 0;
    for (int place = at + 2; place < at + 6; place++) {
      int digit = Character.digit((char) bytes[place], 16);
      if (digit < 0) {
        return -1;
      }
      unit = 16 * unit + digit;
    }
    return unit;
  }

  /** Opens a parser, and notes at its end whether nothing follows. */
  private static final class Opener extends AbstractFunction2 {
    boolean isWhole;

    public Object apply(Object factory, Object text) {
      try {
        return new Watched(((JsonFactory) factory).createParser((byte[]) text), this);
      } catch (IOException error) {
        throw new java.io.UncheckedIOException(error);
      }
    }
  }

  private static final class Watched extends JsonParserDelegate {
    private final Opener opener;

    Watched(JsonParser parser, Opener opener) {
      super(parser);
      this.opener = opener;
    }

    public void close() throws IOException {
      try {
        opener.isWhole = delegate.nextToken() == null;
      } catch (IOException error) {
        opener.isWhole = false;
      }
      delegate.close();
    }
  }

  private static final class Nothing extends AbstractFunction1 {
    public Object apply(Object text) {
      return UTF8String.EMPTY_UTF8;
    }
  }
}
