import { expect, test } from "vitest";
import { branchesOf, type Relative, treeOf } from "./family";

const member = (id: string, from?: string, kind?: string): Relative => ({ id, from, kind, status: "succeeded", created: "", updated: "" });

test("forks are a tree from the first of them, without children", () => {
  const members = [member("parent"), member("a", "parent", "child"), member("b", "a", "fork"), member("c", "b", "fork"), member("d", "a", "fork"), member("e", "a", "child")];
  const tree = [
    ["a", 0],
    ["b", 1],
    ["c", 2],
    ["d", 1],
  ];
  expect(branchesOf(members, "c").map(({ member, depth }) => [member.id, depth])).toEqual(tree);
  expect(branchesOf(members, "a").map(({ member, depth }) => [member.id, depth])).toEqual(tree);
  expect(branchesOf(members, "parent").map(({ member }) => member.id)).toEqual(["parent"]);
});

test("a family is a tree of forks and children", () => {
  const members = [member("parent"), member("a", "parent", "child"), member("b", "a", "fork"), member("c", "parent", "child"), member("lost", "archived", "child")];
  expect(treeOf(members).map(({ member, depth }) => [member.id, depth])).toEqual([
    ["parent", 0],
    ["a", 1],
    ["b", 2],
    ["c", 1],
    ["lost", 0],
  ]);
});
