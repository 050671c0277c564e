package store

// Durability is the class of failures that acknowledged writes survive.
type Durability int

// The durability classes, weakest first.
const (
	None    Durability = iota // gone with the process
	Process                   // survives the death of the process, kill -9 included
	Power                     // survives a power failure or a crash of the system
)

func (d Durability) String() string {
	switch d {
	case Process:
		return "process"
	case Power:
		return "power"
	}
	return "none"
}

func (d Durability) survives() string {
	switch d {
	case Process:
		return "the death of a process only"
	case Power:
		return "a power failure"
	}
	return "nothing"
}

// Durable is the upgrade of stores that say what their writes survive. The class
// follows from the engine's real settings when the store was opened, not from what
// its options asked for.
type Durable interface {
	Durability() Durability
}

// DurabilityOf returns the class of s, or None if s does not implement Durable.
func DurabilityOf(s Store) Durability {
	if d, ok := As[Durable](s); ok {
		return d.Durability()
	}
	return None
}

// Weak is the upgrade of stores that can tell an operator why they are not of class
// [Power].
type Weak interface {
	// Weakness says what makes acknowledged writes less durable, and what to change,
	// "" for class Power.
	Weakness() string
}

func weakness(s Store) string {
	if w, ok := As[Weak](s); ok && w.Weakness() != "" {
		return w.Weakness()
	}
	return "use another store, or settings that are durable"
}
