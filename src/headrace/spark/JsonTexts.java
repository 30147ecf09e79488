package headrace;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Map;
import scala.runtime.AbstractFunction1;

/**
 * The texts of a line or a file of JSON in an encoding, in UTF-8: those of the elements of an array, else the whole; none
 * where there are but spaces. Bytes that are not of the encoding stay as they are.
 */
public final class JsonTexts extends AbstractFunction1 implements Serializable {
  private final String encoding;
  private final Map options;
  private transient JsonFactory factory;

  public JsonTexts(String encoding, Map options) {
    this.encoding = encoding;
    this.options = options;
  }

  public Object apply(Object text) {
    byte[] bytes = (byte[]) text;
    if (!encoding.equals("UTF-8")) {
      try {
        String decoded = Charset.forName(encoding).newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        bytes = decoded.getBytes(StandardCharsets.UTF_8);
      } catch (CharacterCodingException error) {
        return new GenericArrayData(new Object[] {UTF8String.fromBytes(bytes)});
      }
    }
    int at = 0;
    while (at < bytes.length && (bytes[at] == ' ' || bytes[at] == '\t' || bytes[at] == '\r' || bytes[at] == '\n')) {
      at++;
    }
    if (at == bytes.length) {
      return new GenericArrayData(new Object[0]);
    }
    ArrayList texts = bytes[at] == '[' ? elements(bytes) : null;
    return new GenericArrayData(texts == null ? new Object[] {UTF8String.fromBytes(bytes)} : texts.toArray());
  }

  /** The elements of an array; null of what is more than one, or none. */
  private ArrayList elements(byte[] bytes) {
    if (factory == null) {
      factory = new JSONOptions(options, "UTC", "").buildJsonFactory();
    }
    ArrayList texts = new ArrayList();
    try {
      JsonParser parser = factory.createParser(bytes);
      parser.nextToken();
      while (parser.nextToken() != JsonToken.END_ARRAY) {
        int start = (int) parser.currentTokenLocation().getByteOffset();
        if (parser.currentToken() == null) {
          return null;
        }
        parser.skipChildren();
        parser.finishToken();
        int end = (int) parser.currentLocation().getByteOffset();
        texts.add(UTF8String.fromBytes(Arrays.copyOfRange(bytes, start, end)));
      }
      return parser.nextToken() == null ? texts : null;
    } catch (IOException error) {
      return null;
    }
  }
}
