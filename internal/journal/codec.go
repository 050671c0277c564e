package journal

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// codec writes values as JSON or reads them back, by the same functions, so
// that one line tells of a field both ways. A value has one form only: fields
// come in the order of their lines, what is empty is left out, keys are sorted,
// numbers and strings are spelled in one way. Reading refuses all others.
// Strings and values keep their bytes, also those that are no UTF-8.
type codec struct {
	mode mode
	data []byte          // what is written, or all that is read
	at   int             // how far it is read
	err  error           // the first one; nothing happens after it
	runs map[uint64]*Run // by number, for what refers to them
}

type mode int

const (
	reading mode = iota
	writing
	naming // writes a sample with every field in it, which shows the shape
)

func (c *codec) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *codec) peek() byte {
	if c.err != nil || c.at >= len(c.data) {
		return 0
	}
	return c.data[c.at]
}

// mark writes or expects a piece of JSON.
func (c *codec) mark(s string) {
	switch {
	case c.err != nil:
	case c.mode != reading:
		c.data = append(c.data, s...)
	case !bytes.HasPrefix(c.data[c.at:], []byte(s)):
		c.fail("at byte %d there is no %s", c.at, s)
	default:
		c.at += len(s)
	}
}

// key writes the name of a field, or reports whether that is what follows.
func (c *codec) key(name string) bool {
	if c.mode != reading {
		if c.data[len(c.data)-1] != '{' {
			c.data = append(c.data, ',')
		}
		c.data = append(c.data, '"')
		c.data = append(c.data, name...)
		c.data = append(c.data, `":`...)
		return true
	}
	rest := c.data[c.at:]
	if c.data[c.at-1] != '{' {
		if len(rest) == 0 || rest[0] != ',' {
			return false
		}
		rest = rest[1:]
	}
	n := len(name) + 1
	if len(rest) < n+2 || rest[0] != '"' || string(rest[1:n]) != name || rest[n] != '"' || rest[n+1] != ':' {
		return false
	}
	c.at = len(c.data) - len(rest) + n + 2
	return true
}

// object is the braces around fields.
func (c *codec) object(fields func()) {
	c.mark("{")
	if c.err == nil {
		fields()
	}
	c.mark("}")
}

// field is a field that is left out when it is empty.
func field[T any](c *codec, name string, v *T, code func(*codec, *T)) {
	var none T
	unless(c, name, v, none, code)
}

// again is a field that is left out when it is as before.
func again[T any](c *codec, name string, v *T, before T, code func(*codec, *T)) {
	if !unless(c, name, v, before, code) && c.mode == reading {
		*v = before
	}
}

// unless is a field that is left out when it is as usual; it reports whether it
// was there.
func unless[T any](c *codec, name string, v *T, usual T, code func(*codec, *T)) bool {
	if c.err != nil || c.mode == reading && !c.key(name) {
		return false
	}
	if c.mode == reading {
		start := c.at
		code(c, v)
		same := codec{mode: writing}
		if code(&same, &usual); c.err == nil && bytes.Equal(c.data[start:c.at], same.data) {
			c.fail("%s at byte %d says nothing new", name, start)
		}
		return true
	}
	size := len(c.data)
	c.key(name)
	start := len(c.data)
	code(c, v)
	if end := len(c.data); c.mode == writing {
		code(c, &usual) // behind it, to compare
		same := bytes.Equal(c.data[start:end], c.data[end:])
		if c.data = c.data[:end]; same {
			c.data = c.data[:size]
		}
	}
	return true
}

// list is a list of whatever code is for.
func list[T any](code func(*codec, *T)) func(*codec, *[]T) {
	return func(c *codec, v *[]T) {
		if c.mode == naming {
			*v = make([]T, 1)
		}
		c.mark("[")
		for i := 0; c.err == nil; i++ {
			if c.mode == reading {
				if c.peek() == ']' {
					break
				}
				*v = append(*v, *new(T))
			} else if i == len(*v) {
				break
			}
			if i > 0 {
				c.mark(",")
			}
			code(c, &(*v)[i])
		}
		c.mark("]")
	}
}

// dict is a map to whatever code is for.
func dict[T any](code func(*codec, *T)) func(*codec, *map[string]T) {
	return func(c *codec, v *map[string]T) {
		keys := slices.Sorted(maps.Keys(*v))
		if c.mode == naming {
			keys = []string{""}
		}
		c.mark("{")
		for i := 0; c.err == nil; i++ {
			if c.mode == reading {
				if c.peek() == '}' {
					break
				}
				keys = append(keys, "")
			} else if i == len(keys) {
				break
			}
			if i > 0 {
				c.mark(",")
			}
			item := (*v)[keys[i]]
			str(c, &keys[i])
			c.mark(":")
			code(c, &item)
			if c.mode == reading {
				c.ascend(i, keys)
				if *v == nil {
					*v = map[string]T{}
				}
				(*v)[keys[i]] = item
			}
		}
		c.mark("}")
	}
}

// ascend checks that the key at i comes behind the one before it.
func (c *codec) ascend(i int, keys []string) {
	if i > 0 && keys[i] <= keys[i-1] {
		c.fail("the key %q at byte %d is out of order", keys[i], c.at)
	}
}

// set is a set of strings.
func set(c *codec, v *map[string]bool) {
	keys := slices.Sorted(maps.Keys(*v))
	list(str[string])(c, &keys)
	if c.mode != reading || len(keys) == 0 {
		return
	}
	*v = make(map[string]bool, len(keys))
	for i, key := range keys {
		c.ascend(i, keys)
		(*v)[key] = true
	}
}

// maybe is a pointer to whatever code is for, null for none.
func maybe[T any](code func(*codec, *T)) func(*codec, **T) {
	return func(c *codec, v **T) {
		if c.mode == naming || c.mode == reading && c.peek() != 'n' {
			*v = new(T)
		}
		if *v == nil {
			c.mark("null")
			return
		}
		code(c, *v)
	}
}

// always is a pointer to whatever code is for that is never nil.
func always[T any](code func(*codec, *T)) func(*codec, **T) {
	return func(c *codec, v **T) {
		switch {
		case *v != nil:
		case c.mode == writing:
			c.fail("there is nothing where something must be")
			return
		default:
			*v = new(T)
		}
		code(c, *v)
	}
}
