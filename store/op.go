package store

// Op names a method of Store, for wrappers that tell calls apart.
type Op string

// The methods of Store, Close aside.
const (
	OpAppend   Op = "append"
	OpRead     Op = "read"
	OpJournals Op = "journals"
	OpDrop     Op = "drop"
	OpGet      Op = "get"
	OpPut      Op = "put"
	OpDelete   Op = "delete"
	OpList     Op = "list"
)

// Ops are all of them, in the order of the interface.
func Ops() []Op {
	return []Op{OpAppend, OpRead, OpJournals, OpDrop, OpGet, OpPut, OpDelete, OpList}
}

// Writes reports whether op changes the store.
func (op Op) Writes() bool {
	return op == OpAppend || op == OpDrop || op == OpPut || op == OpDelete
}
