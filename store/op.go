package store

// Op names a method of Store, for wrappers that distinguish calls.
type Op string

// The methods of Store except Close.
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

// Ops returns all operations, in the order of the interface.
func Ops() []Op {
	return []Op{OpAppend, OpRead, OpJournals, OpDrop, OpGet, OpPut, OpDelete, OpList}
}

// Writes reports whether op changes the store.
func (op Op) Writes() bool {
	return op == OpAppend || op == OpDrop || op == OpPut || op == OpDelete
}
