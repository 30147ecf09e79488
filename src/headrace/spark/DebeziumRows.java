package headrace;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.runtime.AbstractFunction1;

/**
 * The change that a message of Debezium describes, from its key and value in JSON: an envelope, or one that
 * ExtractNewRecordState has made flat; each with the schema of Kafka Connect's JsonConverter, or without it. The row's
 * values are written again as JSON, in the forms that are judged for all sources, and parsed as `JsonRows` does it.
 *
 * <p>The result is (row, operation, sequence, unavailable, source_time, fault); where there is a fault, a sentence's end,
 * nothing else. What a value means is said by the schema; without one by Debezium's settings, if they are given. What
 * could mean two things is a fault.
 */
public final class DebeziumRows extends AbstractFunction1 implements Serializable {
  private static final String UNAVAILABLE = "__debezium_unavailable_value";
  private static final String TIMES = "io.debezium.time.";
  private static final String CONNECT = "org.apache.kafka.connect.data.";
  private static final String DECIMAL = CONNECT + "Decimal";
  private static final String BITS = "io.debezium.data.Bits";
  // A commit's position in the log of PostgreSQL, and a file of MySQL, leave so many digits to a position.
  private static final BigDecimal POSITIONS = BigDecimal.TEN.pow(19);
  private static final String FAILURES = "event.converting.failure.handling.mode";
  // What the lists hold for which Debezium has a value that says that PostgreSQL did not send them.
  private static final java.util.List SENT = java.util.Arrays.asList(
      new String[] {"string", "int32", "int64", "bytes", TIMES + "Date", "io.debezium.data.Uuid", "io.debezium.data.Json"});
  private static final int MOST_SCHEMAS = 100;

  private final StructType columns;
  private final JsonRows rows;
  private final scala.collection.immutable.Map options;
  private final Map settings;
  private final java.util.TreeSet keys;
  private transient JsonFactory factory;
  private transient Map schemas;

  /**
   * columns: with their declared types; shape: with those that are read; settings: Debezium's, by its names; keys: the
   * columns that a message's key must have, empty: any.
   */
  public DebeziumRows(
      StructType columns,
      DataType shape,
      scala.collection.immutable.Map options,
      String zone,
      Map settings,
      java.util.Collection keys) {
    this.columns = columns;
    this.rows = new JsonRows(shape, options, zone, Boolean.TRUE);
    this.options = options;
    this.settings = new HashMap(settings);
    this.keys = new java.util.TreeSet(keys);
  }

  public Object apply(Object message) {
    InternalRow given = (InternalRow) message;
    if (factory == null) {
      factory = new JSONOptions(options, "UTC", "").buildJsonFactory();
      schemas = new HashMap();
    }
    try {
      byte[] value = given.isNullAt(1) ? null : given.getBinary(1);
      return change(given.isNullAt(0) ? null : given.getBinary(0), value);
    } catch (Fault fault) {
      return refusal(fault.getMessage());
    } catch (IOException error) {
      return refusal("is not a JSON object");
    }
  }

  private static Object refusal(String fault) {
    return new GenericInternalRow(new Object[] {null, null, null, null, null, UTF8String.fromString(fault)});
  }

  private Object change(byte[] keyBytes, byte[] valueBytes) throws IOException {
    if (valueBytes == null) {
      return none(BigDecimal.ZERO, null);
    }
    Part value = part(valueBytes);
    if (value == null) {
      throw new Fault("is not a JSON object");
    }
    if (value.fields == null) {
      return none(BigDecimal.ZERO, null);
    }
    Map fields = value.fields;
    boolean isFlat = fields.containsKey("__op") || fields.containsKey("__deleted");
    Map source = fields;
    String prefix = "";
    if (isFlat) {
      prefix = "__source_";
    } else {
      Slice place = (Slice) fields.get("source");
      boolean isEnvelope = place != null || fields.containsKey("before") || fields.containsKey("after");
      if (!isEnvelope) {
        throw new Fault(
            "is not a change that Debezium writes: it has neither the envelope's 'op' and 'source', nor '__op' and '__deleted'");
      }
      source = place == null ? null : scan(place);
    }
    String op = text(fields, isFlat ? "__op" : "op");
    if (op == null) {
      throw new Fault(isFlat ? "has no '__op': add it by add.fields" : "has an envelope without 'op'");
    }
    if (op.length() != 1 || "crudtm".indexOf(op) < 0) {
      throw new Fault("has the unknown op '" + op + "'");
    }
    if (op.equals("m")) {
      return none(BigDecimal.ZERO, null);
    }
    if (isFlat && !fields.containsKey("__deleted")) {
      throw new Fault("has no '__deleted': set delete.tombstone.handling.mode to rewrite, else deletes are lost");
    }
    if (source == null) {
      throw new Fault("has an envelope without 'source'");
    }
    BigDecimal sequence = sequence(source, prefix);
    Long time = time(source, prefix);
    if (op.equals("t")) {
      return result(empty(), "truncate", sequence, new ArrayList(), time);
    }
    Part key = key(keyBytes);
    boolean isDelete = op.equals("d") || (isFlat && "true".equals(text(fields, "__deleted")));
    ArrayList unavailable = new ArrayList();
    Map row = fields;
    Map kinds = isFlat ? value.kinds : value.inner(isDelete ? "before" : "after");
    if (!isFlat) {
      Slice place = (Slice) fields.get(isDelete ? "before" : "after");
      row = place == null ? null : scan(place);
    }
    if (isDelete && key != null && key.fields != null) {
      // PostgreSQL sends no more than the key by default, and Debezium then puts 0 and '' in the place of the rest.
      return result(row(key.fields, key.kinds, true, false, unavailable), "delete", sequence, unavailable, time);
    }
    if (row == null) {
      throw new Fault("has the op '" + op + "' and no row");
    }
    Slice before = (Slice) fields.get("before");
    boolean mayLack = op.equals("u") && (before == null || before.isNull()) && !"fail".equals(settings.get(FAILURES));
    byte[] json = row(row, kinds, isDelete, mayLack, unavailable);
    return result(json, isDelete ? "delete" : "upsert", sequence, unavailable, time);
  }

  /** The message's key; a fault where it is not that of the query, whose rows could not be found by it. */
  private Part key(byte[] bytes) throws IOException {
    Part key;
    try {
      key = part(bytes);
    } catch (IOException error) {
      key = null;
    }
    if (keys.isEmpty()) {
      return key;
    }
    if (key == null || key.fields == null) {
      throw new Fault(
          bytes == null
              ? "has no key: give the table a primary key, or name its columns in Debezium's message.key.columns"
              : "has a key that is not a JSON object: set key.converter to Kafka's JsonConverter");
    }
    if (!keys.equals(key.fields.keySet())) {
      throw new Fault("has the key " + key.fields.keySet() + ", and the query's keys are " + keys);
    }
    return key;
  }

  private Object none(BigDecimal sequence, Long time) throws IOException {
    return result(empty(), "none", sequence, new ArrayList(), time);
  }

  private static byte[] empty() {
    return new byte[] {'{', '}'};
  }

  private Object result(byte[] json, String operation, BigDecimal sequence, ArrayList unavailable, Long time)
      throws IOException {
    Object row = rows.apply(json);
    if (row == null) {
      throw new Fault(misfit(json));
    }
    return new GenericInternalRow(
        new Object[] {
          row,
          UTF8String.fromString(operation),
          Decimal.apply(sequence, 38, 0),
          new GenericArrayData(unavailable.toArray()),
          time,
          null
        });
  }

  /** What is wrong with a row that does not fit: the first column that does not fit alone. */
  private String misfit(byte[] json) throws IOException {
    StructField[] declared = columns.fields();
    Map values = scan(new Slice(json, 0, json.length));
    for (int at = 0; at < declared.length; at++) {
      String name = declared[at].name();
      Slice slice = (Slice) values.get(name);
      ByteArrayOutputStream alone = new ByteArrayOutputStream();
      alone.write('{');
      alone.write(quoted(name));
      alone.write(':');
      alone.write(slice == null ? "null".getBytes() : slice.raw());
      alone.write('}');
      if (rows.apply(alone.toByteArray()) == null) {
        return "has in column '" + name + "' (" + declared[at].dataType().sql() + ") a value that does not fit";
      }
    }
    return "does not fit the schema";
  }

  // ------------------------------------------------------------------------------------------ what the source says

  /**
   * PostgreSQL: the end of the last commit before the change, then its own position. Positions alone have the order of
   * writing; a transaction that began before a snapshot's read and ended after it would seem older than the read.
   *
   * <p>MySQL: the file and the position, without the row. All statements of a compressed transaction have one
   * position, and each counts its rows from 0: there, as among the rows of one statement, the later message is newer.
   */
  private BigDecimal sequence(Map source, String prefix) throws IOException {
    BigDecimal lsn = number(source, prefix, "lsn");
    String both = text(source, prefix, "sequence");
    // ["commit","position"], or [null,"position"]
    String[] quoted = both == null ? new String[0] : both.split("\"");
    if (lsn == null && quoted.length > 2) {
      // The reads of an incremental snapshot have it here alone.
      lsn = decimal(quoted[quoted.length - 2]);
    }
    if (lsn != null) {
      BigDecimal commit = quoted.length > 4 ? decimal(quoted[1]) : lsn;
      return packed(commit.multiply(POSITIONS).add(lsn));
    }
    String file = text(source, prefix, "file");
    BigDecimal position = number(source, prefix, "pos");
    if (file == null || position == null) {
      String needed = prefix.isEmpty() ? "source.lsn, nor source.file and pos" : "__source_lsn and __source_sequence"
          + " (PostgreSQL), nor __source_file and __source_pos (MySQL): add them by add.fields";
      throw new Fault("says nothing of its order: it has neither " + needed);
    }
    String number = file.substring(file.lastIndexOf('.') + 1);
    return packed(decimal(number).multiply(POSITIONS).add(position));
  }

  private static BigDecimal packed(BigDecimal sequence) {
    if (sequence.signum() < 0 || sequence.scale() > 0 || sequence.precision() > 38) {
      throw new Fault("has a position in the log that is no such number");
    }
    return sequence;
  }

  private Long time(Map source, String prefix) throws IOException {
    BigDecimal micro = number(source, prefix, "ts_us");
    if (micro != null) {
      return new Long(micro.longValue());
    }
    BigDecimal milli = number(source, prefix, "ts_ms");
    return milli == null ? null : new Long(1000L * milli.longValue());
  }

  private BigDecimal number(Map fields, String prefix, String name) throws IOException {
    String text = text(fields, prefix, name);
    return text == null ? null : decimal(text);
  }

  /** A field of the source; made flat, its name may leave out the struct, except for a time: that is another one. */
  private String text(Map fields, String prefix, String name) throws IOException {
    String text = text(fields, prefix + name);
    return text != null || prefix.isEmpty() || name.startsWith("ts_") ? text : text(fields, "__" + name);
  }

  private String text(Map fields, String name) throws IOException {
    Slice slice = (Slice) fields.get(name);
    return slice == null || slice.isNull() ? null : slice.text();
  }

  private static BigDecimal decimal(String text) {
    try {
      return new BigDecimal(text);
    } catch (NumberFormatException error) {
      throw new Fault("has '" + text + "' where a number should be");
    }
  }

  // ------------------------------------------------------------------------------------------------------- the row

  private byte[] row(Map fields, Map kinds, boolean isDelete, boolean mayLack, ArrayList unavailable)
      throws IOException {
    ByteArrayOutputStream json = new ByteArrayOutputStream();
    StructField[] declared = columns.fields();
    for (int at = 0; at < declared.length; at++) {
      String name = declared[at].name();
      Slice slice = (Slice) fields.get(name);
      if (slice == null && !isDelete) {
        throw new Fault("has no column '" + name + "'; its columns are " + names(fields));
      }
      byte[] value = null;
      Kind kind = kinds == null ? null : (Kind) kinds.get(name);
      if (slice != null && !slice.isNull()) {
        if (slice.isUnavailable()) {
          unavailable.add(UTF8String.fromString(name));
        } else {
          value = value(name, declared[at].dataType(), slice, kind, kinds != null);
        }
      } else if (mayLack && kind != null && kind.items != null && !SENT.contains(kind.items.toString())) {
        throw new Fault("has NULL in column '" + name + "', as Debezium also writes it for a list of this type that did not "
            + "change and was not sent: set REPLICA IDENTITY FULL, or " + FAILURES + " to fail, and name this in debezium_settings");
      } else if (!isDelete && !declared[at].nullable()) {
        throw new Fault("has no value of '" + name + "', which the schema says is NOT NULL");
      }
      if (value != null) {
        json.write(json.size() == 0 ? '{' : ',');
        json.write(quoted(name));
        json.write(':');
        json.write(value);
      }
    }
    json.write(json.size() == 0 ? empty() : new byte[] {'}'});
    return json.toByteArray();
  }

  private static String names(Map fields) {
    ArrayList names = new ArrayList();
    Object[] all = fields.keySet().toArray();
    for (int at = 0; at < all.length; at++) {
      if (!((String) all[at]).startsWith("__")) {
        names.add(all[at]);
      }
    }
    String text = names.toString();
    return text.substring(1, text.length() - 1);
  }

  /** A value in the form in which it is judged. `hasSchema`: whether the message says what its values mean. */
  private byte[] value(String name, DataType type, Slice slice, Kind kind, boolean hasSchema) throws IOException {
    String wanted = type.typeName();
    try {
      if (kind != null && kind.isDefault(slice) && !"false".equals(settings.get("replace.null.with.default"))) {
        throw new Fault("is the column's default, which Kafka's JsonConverter also writes for NULL: set the converter's (and "
            + "ExtractNewRecordState's) replace.null.with.default to false, and name it in debezium_settings");
      }
      if (wanted.startsWith("decimal") || (kind != null && kind.isDecimal() && (wanted.equals("string") || wanted.contains("char")))) {
        return decimal(type, slice, kind, hasSchema);
      }
      if (wanted.equals("date")) {
        return date(slice, kind);
      }
      if (wanted.equals("timestamp") || wanted.equals("timestamp_ntz")) {
        return timestamp(slice, kind, hasSchema, wanted.equals("timestamp"));
      }
      if (wanted.equals("binary")) {
        return binary(slice, kind, hasSchema);
      }
      if (wanted.equals("boolean") && slice.isNumber()) {
        // MySQL's BOOLEAN is a TINYINT(1).
        String bit = slice.text();
        return bit.equals("1") ? "true".getBytes() : bit.equals("0") ? "false".getBytes() : slice.raw();
      }
      if ((wanted.equals("double") || wanted.equals("float")) && slice.isNumber()) {
        double number = Double.parseDouble(slice.text());
        if (Double.isInfinite(wanted.equals("float") ? (float) number : number)) {
          throw new Fault("is too large");
        }
      }
      return slice.raw();
    } catch (Fault fault) {
      throw new Fault("has in column '" + name + "' (" + type.sql() + ") a value that " + fault.getMessage());
    } catch (DateTimeException error) {
      throw new Fault("has in column '" + name + "' (" + type.sql() + ") a value that is no such time");
    }
  }

  private byte[] decimal(DataType type, Slice slice, Kind kind, boolean hasSchema) throws IOException {
    if (slice.isNumber()) {
      return slice.raw();
    }
    if (slice.isObject()) {
      Map parts = scan(slice);
      Slice digits = (Slice) parts.get("value");
      String scale = text(parts, "scale");
      if (digits == null || scale == null) {
        throw new Fault("is no number");
      }
      return quoted(unscaled(digits.text(), decimal(scale).intValue()));
    }
    if (!slice.isString()) {
      throw new Fault("is no number");
    }
    if (kind != null && DECIMAL.equals(kind.name)) {
      return quoted(unscaled(slice.text(), decimal(kind.scale).intValue()));
    }
    Object mode = settings.get("decimal.handling.mode");
    if (!hasSchema && mode == null) {
      throw new Fault("may be of the decimal.handling.mode precise or string: name it in debezium_settings, "
          + "or let the converter write schemas");
    }
    if (!hasSchema && mode.equals("precise")) {
      return quoted(unscaled(slice.text(), ((org.apache.spark.sql.types.DecimalType) type).scale()));
    }
    return slice.raw();
  }

  private static String unscaled(String base64, int scale) {
    try {
      return new BigDecimal(new BigInteger(Base64.getDecoder().decode(base64)), scale).toPlainString();
    } catch (IllegalArgumentException error) {
      throw new Fault("is not the base64 of a number");
    }
  }

  private byte[] date(Slice slice, Kind kind) throws IOException {
    if (slice.isNumber()) {
      if (kind != null && !(TIMES + "Date").equals(kind.name) && !(CONNECT + "Date").equals(kind.name)) {
        throw new Fault("is no date, but " + kind);
      }
      return quoted(LocalDate.ofEpochDay(slice.integer()).toString());
    }
    String text = slice.text();
    if (kind != null && !kind.isText() && !(TIMES + "IsoDate").equals(kind.name)) {
      throw new Fault("is no date, but " + kind);
    }
    // Debezium writes the zone of a date, which is always UTC.
    return quoted(text.length() == 11 && text.endsWith("Z") ? text.substring(0, 10) : text);
  }

  private byte[] timestamp(Slice slice, Kind kind, boolean hasSchema, boolean hasZone) throws IOException {
    Object mode = settings.get("time.precision.mode");
    if (slice.isNumber()) {
      long unit = 0;
      if (hasSchema) {
        String name = kind == null || kind.name == null ? "" : kind.name;
        if (name.equals(TIMES + "Timestamp") || name.equals(CONNECT + "Timestamp")) {
          unit = 1000;
        } else if (name.equals(TIMES + "MicroTimestamp")) {
          unit = 1000000;
        } else if (name.equals(TIMES + "NanoTimestamp")) {
          unit = 1000000000;
        } else {
          throw new Fault("is no timestamp, but " + kind);
        }
      } else if (mode != null) {
        unit = mode.equals("connect") ? 1000 : mode.equals("microseconds") ? 1000000 : mode.equals("nanoseconds") ? 1000000000 : 0;
      }
      if (unit == 0) {
        throw new Fault("may count milliseconds or microseconds: let the converter write schemas, or set "
            + "time.precision.mode to isostring, microseconds or connect, and name it in debezium_settings");
      }
      long number = slice.integer();
      Instant instant = Instant.ofEpochSecond(Math.floorDiv(number, unit), Math.floorMod(number, unit) * (1000000000L / unit));
      String text = LocalDateTime.ofInstant(instant, ZoneOffset.UTC).toString();
      return quoted((text.length() == 16 ? text + ":00" : text) + (hasZone ? "Z" : ""));
    }
    String text = slice.text();
    if (kind != null && !kind.isText() && !kind.name.equals(TIMES + "IsoTimestamp") && !kind.name.equals(TIMES + "ZonedTimestamp")) {
      throw new Fault("is no timestamp, but " + kind);
    }
    if (hasZone || !text.endsWith("Z")) {
      return slice.raw();
    }
    // The mode isostring writes a zone behind a time that has none.
    boolean hasNone = hasSchema ? kind != null && (TIMES + "IsoTimestamp").equals(kind.name) : "isostring".equals(mode);
    if (!hasNone) {
      throw new Fault("has a zone: declare TIMESTAMP");
    }
    return quoted(text.substring(0, text.length() - 1));
  }

  private byte[] binary(Slice slice, Kind kind, boolean hasSchema) throws IOException {
    if (!slice.isString()) {
      throw new Fault("is no text");
    }
    Object mode = settings.get("binary.handling.mode");
    if (hasSchema && kind != null && "bytes".equals(kind.type)) {
      if (kind.name != null && !BITS.equals(kind.name)) {
        throw new Fault("holds no bytes, but " + kind);
      }
      mode = "bytes";
    }
    if (mode == null || (hasSchema && mode.equals("bytes") && (kind == null || !"bytes".equals(kind.type)))) {
      throw new Fault("may be of the binary.handling.mode bytes, base64, base64-url-safe or hex: name it in debezium_settings");
    }
    String text = slice.text();
    try {
      byte[] bytes;
      if (mode.equals("hex")) {
        bytes = new byte[text.length() / 2];
        if (2 * bytes.length != text.length()) {
          throw new Fault("is not of the binary.handling.mode hex");
        }
        for (int at = 0; at < bytes.length; at++) {
          int high = Character.digit(text.charAt(2 * at), 16);
          int low = Character.digit(text.charAt(2 * at + 1), 16);
          if (high < 0 || low < 0) {
            throw new Fault("is not of the binary.handling.mode hex");
          }
          bytes[at] = (byte) (16 * high + low);
        }
      } else {
        bytes = (mode.equals("base64-url-safe") ? Base64.getUrlDecoder() : Base64.getDecoder()).decode(text);
      }
      // Debezium writes the last byte of a BIT(n) first.
      for (int at = 0; kind != null && BITS.equals(kind.name) && at < bytes.length / 2; at++) {
        byte first = bytes[at];
        bytes[at] = bytes[bytes.length - 1 - at];
        bytes[bytes.length - 1 - at] = first;
      }
      return quoted(Base64.getEncoder().encodeToString(bytes));
    } catch (IllegalArgumentException error) {
      throw new Fault("is not of the binary.handling.mode " + mode);
    }
  }

  /** A text without line ends or other characters that JSON has to escape, but for quotes and backslashes. */
  private static byte[] quoted(String text) {
    StringBuilder json = new StringBuilder("\"");
    for (int at = 0; at < text.length(); at++) {
      char letter = text.charAt(at);
      if (letter == '"' || letter == '\\') {
        json.append('\\').append(letter);
      } else if (letter < ' ') {
        json.append(String.format("\\u%04x", new Object[] {new Integer(letter)}));
      } else {
        json.append(letter);
      }
    }
    return json.append('"').toString().getBytes(StandardCharsets.UTF_8);
  }

  // ---------------------------------------------------------------------------------------------------- the message

  /** A key or a value; null of one that is not a JSON object. Its `fields` are null where its payload is. */
  private Part part(byte[] bytes) throws IOException {
    if (bytes == null) {
      return null;
    }
    Part part = new Part();
    try {
      part.fields = scan(new Slice(bytes, 0, bytes.length));
    } catch (NoObject error) {
      return null;
    }
    if (part.fields.size() == 2 && part.fields.containsKey("schema") && part.fields.containsKey("payload")) {
      Slice payload = (Slice) part.fields.get("payload");
      part.schema = schema((Slice) part.fields.get("schema"));
      part.kinds = part.schema == null ? null : part.schema.fields;
      part.fields = payload.isObject() ? scan(payload) : null;
      if (part.fields == null && !payload.isNull()) {
        return null;
      }
    }
    return part;
  }

  /** The kinds of a schema's fields, kept for the next message; null of a schema that is null. */
  private Kind schema(Slice slice) throws IOException {
    if (slice.isNull()) {
      return null;
    }
    ByteBuffer text = ByteBuffer.wrap(slice.bytes, slice.start, slice.end - slice.start);
    Kind kind = (Kind) schemas.get(text);
    if (kind == null) {
      if (schemas.size() >= MOST_SCHEMAS) {
        schemas.clear();
      }
      kind = kind(slice);
      schemas.put(ByteBuffer.wrap(slice.raw()), kind);
    }
    return kind;
  }

  private Kind kind(Slice slice) throws IOException {
    Map parts = scan(slice);
    Kind kind = new Kind();
    kind.type = text(parts, "type");
    kind.name = text(parts, "name");
    Slice parameters = (Slice) parts.get("parameters");
    kind.scale = parameters == null ? null : text(scan(parameters), "scale");
    kind.standard = "true".equals(text(parts, "optional")) ? text(parts, "default") : null;
    Slice items = (Slice) parts.get("items");
    kind.items = items == null ? null : kind(items);
    Slice fields = (Slice) parts.get("fields");
    if (fields != null) {
      kind.fields = new HashMap();
      ArrayList all = fields.elements(factory);
      for (int at = 0; at < all.size(); at++) {
        Slice field = (Slice) all.get(at);
        kind.fields.put(text(scan(field), "field"), kind(field));
      }
    }
    return kind;
  }

  /** The fields of an object, in order, with where their values lie. */
  private Map scan(Slice slice) throws IOException {
    if (slice.fields != null || slice.isNull()) {
      return slice.fields;
    }
    JsonParser parser = factory.createParser(slice.bytes, slice.start, slice.end - slice.start);
    if (parser.nextToken() != JsonToken.START_OBJECT) {
      throw new NoObject();
    }
    Map fields = slice.fields(parser);
    if (parser.nextToken() != null) {
      throw new NoObject();
    }
    parser.close();
    return fields;
  }

  private static final class Part {
    Map fields;
    Map kinds;
    Kind schema;

    /** The kinds of a field's fields. */
    Map inner(String name) {
      Kind kind = kinds == null ? null : (Kind) kinds.get(name);
      return kind == null ? null : kind.fields;
    }
  }

  private static final class Kind {
    String type;
    String name;
    String scale;
    // The default of a column that may be NULL.
    String standard;
    Kind items;
    Map fields;

    boolean isText() {
      return name == null && "string".equals(type);
    }

    boolean isDecimal() {
      return DECIMAL.equals(name) || "io.debezium.data.VariableScaleDecimal".equals(name);
    }

    boolean isDefault(Slice slice) {
      return standard != null && standard.equals(slice.text());
    }

    public String toString() {
      return name == null ? type : name;
    }
  }

  /** A value of JSON, as it lies in a message. */
  private static final class Slice {
    private static final java.util.List READ = java.util.Arrays.asList(new String[] {"source", "after"});

    final byte[] bytes;
    final int start;
    final int end;
    private String text;
    private Map fields;

    Slice(byte[] bytes, int start, int end) {
      this.bytes = bytes;
      this.start = start;
      this.end = end;
    }

    /** The value at which a parser of this one stands; the parser then stands behind it. */
    Slice part(JsonParser parser) throws IOException {
      int first = start + (int) parser.currentTokenLocation().getByteOffset();
      if (parser.currentToken() == null) {
        throw new NoObject();
      }
      String text = parser.currentToken() == JsonToken.VALUE_STRING ? parser.getText() : null;
      // These are read for nearly every change: reading them here saves another pass over them.
      boolean isRead = parser.currentToken() == JsonToken.START_OBJECT && READ.contains(parser.currentName());
      Map fields = isRead ? fields(parser) : null;
      parser.skipChildren();
      parser.finishToken();
      Slice part = new Slice(bytes, first, start + (int) parser.currentLocation().getByteOffset());
      part.text = text;
      part.fields = fields;
      return part;
    }

    /** The fields of the object that a parser of this one has begun; the parser then stands at its end. */
    Map fields(JsonParser parser) throws IOException {
      Map fields = new LinkedHashMap();
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        String name = parser.currentName();
        parser.nextToken();
        fields.put(name, part(parser));
      }
      return fields;
    }

    ArrayList elements(JsonFactory factory) throws IOException {
      JsonParser parser = factory.createParser(bytes, start, end - start);
      ArrayList all = new ArrayList();
      parser.nextToken();
      while (parser.nextToken() != JsonToken.END_ARRAY) {
        all.add(part(parser));
      }
      return all;
    }

    byte[] raw() {
      byte[] copy = new byte[end - start];
      System.arraycopy(bytes, start, copy, 0, copy.length);
      return copy;
    }

    boolean isNull() {
      return end > start && bytes[start] == 'n';
    }

    boolean isString() {
      return bytes[start] == '"';
    }

    boolean isObject() {
      return bytes[start] == '{';
    }

    boolean isNumber() {
      return bytes[start] == '-' || (bytes[start] >= '0' && bytes[start] <= '9');
    }

    /** A text's characters, else what stands there. */
    String text() {
      return text != null ? text : new String(bytes, start, end - start, StandardCharsets.UTF_8);
    }

    long integer() {
      try {
        return new BigDecimal(text()).longValueExact();
      } catch (ArithmeticException error) {
        throw new Fault("is no whole number");
      }
    }

    /** Whether the database did not send the value, as Debezium says it for each type. */
    boolean isUnavailable() {
      if (bytes[start] == '"') {
        return AS_TEXTS.contains(text);
      }
      if (bytes[start] != '[' && bytes[start] != '{') {
        return false;
      }
      int length = end - start;
      if (length > AS_NUMBERS.length() + 10) {
        return false;
      }
      String all = text().replace(" ", "");
      return all.equals("[\"" + UNAVAILABLE + "\"]")
          || all.equals("[\"" + AS_UUID + "\"]")
          || all.equals("[\"" + AS_BASE64 + "\"]")
          || all.equals(AS_NUMBERS)
          || all.equals(AS_MAP);
    }

    private static final byte[] BYTES = UNAVAILABLE.getBytes();
    private static final String AS_BASE64 = Base64.getEncoder().encodeToString(BYTES);
    private static final String AS_NUMBERS = java.util.Arrays.toString(BYTES).replace(" ", "");
    private static final String AS_UUID = java.util.UUID.nameUUIDFromBytes(BYTES).toString();
    private static final String AS_MAP = "{\"" + UNAVAILABLE + "\":\"" + UNAVAILABLE + "\"}";
    private static final java.util.List AS_TEXTS = java.util.Arrays.asList(
        new String[] {UNAVAILABLE, AS_BASE64, Base64.getUrlEncoder().encodeToString(BYTES), hex(BYTES), AS_MAP});

    private static String hex(byte[] bytes) {
      return String.format("%x", new Object[] {new BigInteger(1, bytes)});
    }
  }

  /** What is wrong with a message, as the end of a sentence. */
  private static final class Fault extends RuntimeException {
    Fault(String end) {
      super(end, null, false, false);
    }
  }

  private static final class NoObject extends IOException {}

  /** As a plan shows it. */
  public String toString() {
    return "DebeziumRows(" + columns.json() + ")";
  }
}
