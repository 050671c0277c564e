import { Plus, X } from "lucide-react";
import { useId, useState } from "react";
import { parsedWritten, rawNumber } from "@/lib/exact";
import { own } from "@/lib/own";
import { blank, type Faults, faultsAt, kindOf, plainSchema, pointer, type Schema, Unfinished } from "@/lib/schema";
import { oneLine, plain } from "@/lib/text";
import { Button } from "./Button";
import { Area, Field, Input, Select } from "./Field";

interface FormProps {
  schema: Schema | boolean | undefined;
  value: unknown;
  onChange(value: unknown): void;
  faults: Faults;
}

/** A form for a value that fits a JSON Schema. Where the schema leaves things open, it takes JSON. */
export function SchemaForm({ schema, value, onChange, faults }: FormProps) {
  const root = typeof schema === "object" ? schema : {};
  const at = plainSchema(schema, root);
  if (kindOf(at) === "object") return <Members schema={at} root={root} value={value} onChange={onChange} faults={faults} at="" />;
  return <Entry schema={at} root={root} name={at.title ?? "Value"} at="" value={value} onChange={onChange} faults={faults} needed />;
}

interface EntryProps extends FormProps {
  schema: Schema;
  root: Schema;
  at: string;
  name: string;
  needed?: boolean;
}

function Members({ schema, root, value, onChange, faults, at }: Omit<EntryProps, "name" | "needed">) {
  const members = (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {}) as Record<string, unknown>;
  const known = Object.keys(schema.properties ?? {});
  const others = Object.keys(members).filter((name) => !known.includes(name));
  const set = (name: string, next: unknown) => {
    const all = { ...members, [name]: next };
    if (next === undefined) delete all[name];
    onChange(all);
  };
  return (
    <div className="space-y-3">
      {[...known, ...others].map((name) => (
        <Entry
          key={name}
          schema={plainSchema(own(schema.properties, name), root)}
          root={root}
          name={name}
          at={`${at}/${pointer(name)}`}
          value={own(members, name)}
          onChange={(next) => set(name, next)}
          faults={faults}
          needed={schema.required?.includes(name)}
        />
      ))}
      {known.length + others.length === 0 && <p className="text-soft">There is nothing to fill in.</p>}
    </div>
  );
}

function Entry(props: EntryProps) {
  const { schema, root, name, at, value, onChange, faults, needed } = props;
  const kind = kindOf(schema);
  const label = plain(schema.title && at !== "" ? `${schema.title} (${name})` : name);
  const hint = schema.description ? plain(schema.description) : undefined;
  const error = plainly(kind === "object" || kind === "list" ? faults.get(at) : faultsAt(faults, at));
  const group = useId();
  if (kind === "yes-no")
    return (
      <div>
        <label className="flex items-center gap-2 font-medium">
          <input type="checkbox" className="size-4 accent-accent-fill" checked={value === true} onChange={(e) => onChange(e.target.checked)} />
          <bdi>{label}</bdi>
          {hint && <span className="text-xs font-normal text-soft">{hint}</span>}
        </label>
        {error && <p className="text-xs text-bad">{error}</p>}
      </div>
    );
  if (kind === "object" || kind === "list")
    return (
      <div role="group" aria-labelledby={group} className="space-y-2">
        <p id={group} className="font-medium">
          <bdi>{label}</bdi> {hint && <span className="text-xs font-normal text-soft">{hint}</span>}
        </p>
        {error && <p className="text-xs text-bad">{error}</p>}
        <div className="border-l border-line pl-3">
          {kind === "object" ? <Members schema={schema} root={root} value={value} onChange={onChange} faults={faults} at={at} /> : <Elements {...props} />}
        </div>
      </div>
    );
  return (
    <Field label={label} hint={hint} error={error} required={needed}>
      {(ids) => {
        if (kind === "choice")
          return (
            <Select {...ids} value={value === undefined ? "" : JSON.stringify(value)} onChange={(e) => onChange(e.target.value === "" ? undefined : parsedWritten(e.target.value))}>
              {(!needed || value === undefined) && <option value="">{needed ? "choose" : "none"}</option>}
              {schema.enum?.map((one) => (
                <option key={JSON.stringify(one)} value={JSON.stringify(one)}>
                  {oneLine(String(one), 80)}
                </option>
              ))}
            </Select>
          );
        if (kind === "text")
          return (
            <Area
              {...ids}
              dir="auto"
              rows={1}
              className="block field-sizing-content max-h-64 !min-h-8 resize-none"
              value={value instanceof Unfinished ? value.text : typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value)}
              onChange={(e) => onChange(e.target.value === "" && !needed ? undefined : e.target.value)}
            />
          );
        if (kind === "number" || kind === "integer")
          return (
            <Input
              {...ids}
              inputMode={kind === "integer" ? "numeric" : "decimal"}
              value={value instanceof Unfinished ? value.text : (rawNumber(value) ?? (value === undefined || value === null ? "" : String(value)))}
              onChange={(e) => onChange(numberOf(e.target.value))}
            />
          );
        return <AnyValue ids={ids} value={value} onChange={onChange} />;
      }}
    </Field>
  );
}

const plainly = (text: string | undefined) => (text === undefined ? undefined : oneLine(text));

/** A number of a text; undefined if there is none yet. */
function numberOf(text: string): unknown {
  if (text.trim() === "") return undefined;
  const value = parsedWritten(text.trim());
  return typeof value === "number" || rawNumber(value) !== undefined ? value : new Unfinished(text);
}

function Elements({ schema, root, at, name, value, onChange, faults }: EntryProps) {
  const list = Array.isArray(value) ? value : [];
  const one = plainSchema(schema.items, root);
  return (
    <div className="space-y-2">
      {list.map((element, n) => (
        <div key={n} className="flex items-end gap-1">
          <div className="min-w-0 flex-1">
            <Entry
              schema={one}
              root={root}
              name={`${name} ${n + 1}`}
              at={`${at}/${n}`}
              value={element}
              onChange={(next) => onChange(list.with(n, next ?? (kindOf(one) === "text" ? "" : null)))}
              faults={faults}
            />
          </div>
          <Button look="quiet" icon={<X aria-hidden />} aria-label={`Remove ${name} ${n + 1}`} onClick={() => onChange(list.toSpliced(n, 1))} />
        </div>
      ))}
      <Button size="small" icon={<Plus aria-hidden />} onClick={() => onChange([...list, blank(one, root) ?? null])}>
        Add to {oneLine(name, 40)}
      </Button>
    </div>
  );
}

function AnyValue({ ids, value, onChange }: { ids: Record<string, unknown>; value: unknown; onChange(value: unknown): void }) {
  const written = value === undefined ? "" : value instanceof Unfinished ? value.text : JSON.stringify(value, null, 2);
  const [text, setText] = useState(written);
  const shown = JSON.stringify(parsedWritten(text)) === JSON.stringify(value) ? text : written;
  return (
    <Area
      {...ids}
      spellCheck={false}
      placeholder="JSON"
      className="block field-sizing-content max-h-64 font-mono text-xs"
      value={shown}
      onChange={(e) => {
        setText(e.target.value);
        const now = parsedWritten(e.target.value);
        onChange(e.target.value.trim() === "" ? undefined : now === undefined ? new Unfinished(e.target.value) : now);
      }}
    />
  );
}
