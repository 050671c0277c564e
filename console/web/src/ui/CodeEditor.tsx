import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json, jsonParseLinter } from "@codemirror/lang-json";
import { bracketMatching, defaultHighlightStyle, foldGutter, foldKeymap, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, linter, lintKeymap } from "@codemirror/lint";
import { Compartment, EditorState, type Extension, Transaction } from "@codemirror/state";
import { oneDark } from "@codemirror/theme-one-dark";
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { useLayoutEffect, useRef } from "react";
import { nonce } from "@/app/place";
import { useDark } from "@/app/theme";
import { nameTwice, twiceText } from "@/lib/exact";

export interface CodeProps {
  value: string;
  onChange?(value: string): void;
  label: string;
  language?: "json" | "text";
  height?: string;
}

const look = EditorView.theme({
  "&": { fontSize: "12px", backgroundColor: "transparent", height: "100%" },
  ".cm-gutters": { backgroundColor: "transparent", border: "none" },
});

const shared: Extension = [
  EditorView.cspNonce.of(nonce),
  EditorView.lineWrapping,
  look,
  lineNumbers(),
  foldGutter(),
  highlightSpecialChars(),
  drawSelection(),
  bracketMatching(),
  syntaxHighlighting(defaultHighlightStyle, { fallback: true }),
];

const writing: Extension = [history(), indentOnInput(), closeBrackets(), highlightActiveLine(), highlightActiveLineGutter()];
const keys = keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...foldKeymap, ...lintKeymap]);
const reading: Extension = [EditorState.readOnly.of(true), EditorView.editable.of(false), keymap.of([...defaultKeymap, ...foldKeymap])];

const parseFaults = jsonParseLinter();
const jsonFaults = (view: EditorView): Diagnostic[] => {
  const twice = nameTwice(view.state.doc.toString());
  return twice ? [{ from: twice.from, to: twice.to, severity: "error", message: twiceText(twice.name) }] : parseFaults(view);
};

const themeOf = (dark: boolean): Extension => (dark ? oneDark : []);

export default function CodeEditor({ value, onChange, label, language = "json", height = "12rem" }: CodeProps) {
  const dark = useDark();
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const theme = useRef(new Compartment());
  const latest = useRef({ value, onChange, dark });
  latest.current = { value, onChange, dark };
  const writes = !!onChange;

  useLayoutEffect(() => {
    const extensions: Extension[] = [shared, theme.current.of(themeOf(latest.current.dark)), EditorView.contentAttributes.of({ "aria-label": label })];
    if (language === "json") extensions.push(json());
    if (language === "json" && writes) extensions.push(linter(jsonFaults));
    extensions.push(writes ? [writing, keys] : reading);
    extensions.push(
      EditorView.updateListener.of(({ docChanged, state, transactions }) => {
        if (docChanged && !transactions.some((one) => one.annotation(Transaction.remote))) latest.current.onChange?.(state.doc.toString());
      }),
    );
    const editor = new EditorView({ parent: place.current!, doc: latest.current.value, extensions });
    view.current = editor;
    return () => editor.destroy();
  }, [label, language, writes]);

  useLayoutEffect(() => {
    const editor = view.current;
    const now = editor?.state.doc.toString();
    // What was typed is told as it is typed, so a value that differs comes from elsewhere.
    if (editor && now !== value) editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value }, annotations: Transaction.remote.of(true) });
  }, [value]);

  useLayoutEffect(() => view.current?.dispatch({ effects: theme.current.reconfigure(themeOf(dark)) }), [dark]);

  return <div ref={place} className="overflow-hidden rounded border border-line-strong bg-panel focus-within:outline-2 focus-within:outline-accent" style={{ height }} />;
}
