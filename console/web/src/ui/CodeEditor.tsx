import { json, jsonParseLinter } from "@codemirror/lang-json";
import { linter } from "@codemirror/lint";
import CodeMirror, { EditorView, type Extension } from "@uiw/react-codemirror";
import { useMemo } from "react";
import { nonce } from "@/app/place";
import { useDark } from "@/app/theme";
import type { CodeProps } from "./Code";

export default function CodeEditor({ value, onChange, label, language = "json", height = "12rem" }: CodeProps) {
  const dark = useDark();
  const extensions = useMemo(() => {
    const all: Extension[] = [
      EditorView.cspNonce.of(nonce),
      EditorView.lineWrapping,
      EditorView.contentAttributes.of({ "aria-label": label }),
      EditorView.theme({ "&": { fontSize: "12px", backgroundColor: "transparent" }, ".cm-gutters": { backgroundColor: "transparent", border: "none" } }),
    ];
    if (language === "json") all.push(json());
    if (language === "json" && onChange) all.push(linter(jsonParseLinter()));
    return all;
  }, [label, language, !onChange]);
  return (
    <div className="overflow-hidden rounded border border-line-strong bg-panel focus-within:outline-2 focus-within:outline-accent">
      <CodeMirror
        value={value}
        height={height}
        theme={dark ? "dark" : "light"}
        editable={!!onChange}
        readOnly={!onChange}
        onChange={onChange}
        extensions={extensions}
        basicSetup={{ foldGutter: true, highlightActiveLine: !!onChange, highlightActiveLineGutter: !!onChange, searchKeymap: false }}
      />
    </div>
  );
}
