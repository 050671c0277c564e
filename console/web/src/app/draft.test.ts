// @vitest-environment happy-dom
import { beforeEach, expect, test, vi } from "vitest";
import { changeDraft, draftKey, forgetDrafts, keepDraftsOf, readDraft } from "./draft";

const ann = { subject: "ann" };
const bob = { subject: "bob" };
const elsewhere = { tenant: "b", subject: "ann" };

beforeEach(() => sessionStorage.clear());

test("a draft belongs to one person", () => {
  changeDraft(draftKey(ann, "chat t"), { text: "hi" });
  expect(readDraft(draftKey(ann, "chat t"))).toEqual({ text: "hi" });
  expect(readDraft(draftKey(bob, "chat t"))).toBeUndefined();
  expect(readDraft(draftKey(elsewhere, "chat t"))).toBeUndefined();
  changeDraft<{ text: string }>(draftKey(ann, "chat t"), (before) => ({ text: `${before?.text}!` }));
  expect(readDraft(draftKey(ann, "chat t"))).toEqual({ text: "hi!" });
  expect(readDraft(draftKey(ann, "chat t"))).toBe(readDraft(draftKey(ann, "chat t")));
});

test("who signs in keeps their own drafts only, and who signs out keeps none", () => {
  sessionStorage.setItem("other", "stays");
  for (const who of [ann, bob, elsewhere]) changeDraft(draftKey(who, "ask a"), who.subject);
  keepDraftsOf(ann);
  expect([ann, bob, elsewhere].map((who) => readDraft(draftKey(who, "ask a")))).toEqual(["ann", undefined, undefined]);
  forgetDrafts();
  expect(readDraft(draftKey(ann, "ask a"))).toBeUndefined();
  expect(Object.keys(sessionStorage)).toEqual(["other"]);
});

test("a draft for which there is no room lasts as long as the page, and the one before it is gone", () => {
  const key = draftKey(ann, "ask a");
  changeDraft(key, "before");
  const storage = sessionStorage;
  const setItem = () => {
    throw new DOMException("full", "QuotaExceededError");
  };
  vi.stubGlobal("sessionStorage", { getItem: (name: string) => storage.getItem(name), removeItem: (name: string) => storage.removeItem(name), setItem });
  changeDraft(key, "after");
  expect([readDraft(key), sessionStorage.getItem(key)]).toEqual(["after", null]);
  changeDraft<string>(key, (before) => `${before}!`);
  expect(readDraft(key)).toBe("after!");
  vi.unstubAllGlobals();
  changeDraft(key, "saved");
  expect([readDraft(key), sessionStorage.getItem(key)]).toEqual(["saved", '"saved"']);
});
