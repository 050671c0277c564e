import type { Schemas } from "@/api/client";

export type Relative = Schemas["Relative"];

/** The members of a family that are forks of each other, each with its depth, in the order of a tree. */
export function branchesOf(members: readonly Relative[], thread: string): { member: Relative; depth: number }[] {
  const byId = new Map(members.map((member) => [member.id, member]));
  let root = byId.get(thread);
  while (root?.kind === "fork" && root.from !== undefined && byId.has(root.from)) root = byId.get(root.from);
  const tree: { member: Relative; depth: number }[] = [];
  const add = (member: Relative, depth: number) => {
    tree.push({ member, depth });
    for (const one of members) if (one.kind === "fork" && one.from === member.id) add(one, depth + 1);
  };
  if (root) add(root, 0);
  return tree;
}
