import type { Schemas } from "@/api/client";

export type Relative = Schemas["Relative"];

interface Branch {
  member: Relative;
  depth: number;
}

/** The members of a family in the order of a tree, each with its depth. One that comes from none of them is a root. */
export function treeOf(members: readonly Relative[]): Branch[] {
  const ids = new Set(members.map((member) => member.id));
  return members.filter((member) => member.from === undefined || !ids.has(member.from)).flatMap((root) => below(members, root, 0, new Set()));
}

function below(members: readonly Relative[], member: Relative, depth: number, above: ReadonlySet<string>): Branch[] {
  if (above.has(member.id)) return [];
  const path = new Set(above).add(member.id);
  return [{ member, depth }, ...members.filter((one) => one.from === member.id).flatMap((one) => below(members, one, depth + 1, path))];
}

/** The members of a family that are forks of each other, each with its depth, in the order of a tree. */
export function branchesOf(members: readonly Relative[], thread: string): Branch[] {
  const byId = new Map(members.map((member) => [member.id, member]));
  let root = byId.get(thread);
  while (root?.kind === "fork" && root.from !== undefined && byId.has(root.from)) root = byId.get(root.from);
  return root ? below([root, ...members.filter((one) => one.kind === "fork")], root, 0, new Set()) : [];
}
