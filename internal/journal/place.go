package journal

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Place says where a value is in the journal: the sequence of its entry, and the
// index of the value in the body. 0 means nowhere. It is encoded as a number, which
// is short for the results of steps, since their index is 0.
type Place uint64

const seqBits = 48

// placeOf returns the place of the nth value of a body: 0 is its result or input,
// and the values of its changes follow in order. It returns 0 if the numbers are too
// large for a Place.
func placeOf(seq uint64, nth int) Place {
	if seq >= 1<<seqBits || nth >= 1<<(64-seqBits) {
		return 0
	}
	return Place(nth)<<seqBits | Place(seq)
}

// Seq returns the sequence of the entry that holds the value.
func (p Place) Seq() uint64 { return uint64(p & (1<<seqBits - 1)) }

// plus returns the place of the ith value after the one at p in the same body.
func (p Place) plus(i int) Place {
	if p == 0 {
		return 0
	}
	return placeOf(p.Seq(), int(p>>seqBits)+i)
}

// placed returns the value with its place. A value without JSON needs none.
func (v Value) placed(p Place) Value {
	if v.JSON != nil {
		v.At = p
	}
	return v
}

// ValueAt returns the value at a place, which must be in the entry of the body.
func (b *Body) ValueAt(p Place) (Value, error) {
	nth := int(p >> seqBits)
	if nth == 0 && !b.Value.IsZero() {
		return b.Value, nil
	}
	for i := range b.State {
		c := &b.State[i]
		if c.Set != nil {
			if nth--; nth == 0 {
				return *c.Set, nil
			}
		}
		if nth > 0 && nth <= len(c.Append) {
			return c.Append[nth-1], nil
		}
		nth -= len(c.Append)
	}
	return Value{}, fmt.Errorf("entry %d has no value %d", p.Seq(), p>>seqBits)
}

// values returns how many values a change holds, apart from the step's result.
func (c *Change) values() int {
	if c.Set != nil {
		return 1 + len(c.Append)
	}
	return len(c.Append)
}

// keptValue is a value in a snapshot: the value itself, or its place if the value is
// longer than shortValue.
type keptValue Value

const shortValue = 64 // bytes

func (v keptValue) IsZero() bool { return Value(v).IsZero() }

func (v keptValue) MarshalJSON() ([]byte, error) {
	if Value(v).Elsewhere() || v.At != 0 && len(v.JSON) > shortValue {
		return strconv.AppendUint(nil, uint64(v.At), 10), nil
	}
	return Value(v).MarshalJSON()
}

func (v *keptValue) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] < '0' || b[0] > '9' {
		return (*Value)(v).UnmarshalJSON(b)
	}
	var p uint64
	err := json.Unmarshal(b, &p)
	*v = keptValue{At: Place(p)}
	return err
}
