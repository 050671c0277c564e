package journal

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/blob"
)

// large returns how many bytes the blobs have that a body refers to.
func (b *Body) large() (n int64) {
	add := func(v *Value) {
		if v.Blob != nil {
			n += v.Blob.Size
		}
	}
	add(&b.Value)
	for i := range b.State {
		if set := b.State[i].Set; set != nil {
			add(set)
		}
		for j := range b.State[i].Append {
			add(&b.State[i].Append[j])
		}
	}
	for _, v := range b.Deps {
		add(&v)
	}
	if b.Ask != nil {
		add(&b.Ask.Data)
		if b.Ask.Default != nil {
			add(&b.Ask.Default.Value)
		}
	}
	if b.Answer != nil {
		add(&b.Answer.Value)
	}
	for _, file := range b.Blobs {
		n += file.Ref.Size
	}
	return n
}

// Refs returns the blobs that a body refers to, always in the same order.
func (b *Body) Refs() []blob.Ref {
	var refs []blob.Ref
	add := func(values ...Value) {
		for _, v := range values {
			if v.Blob != nil {
				refs = append(refs, *v.Blob)
			}
		}
	}
	add(b.Value)
	for _, c := range b.State {
		if c.Set != nil {
			add(*c.Set)
		}
		add(c.Append...)
	}
	for _, key := range slices.Sorted(maps.Keys(b.Deps)) {
		add(b.Deps[key])
	}
	if b.Ask != nil {
		add(b.Ask.Data)
		if b.Ask.Default != nil {
			add(b.Ask.Default.Value)
		}
	}
	if b.Answer != nil {
		add(b.Answer.Value)
	}
	for _, file := range b.Blobs {
		refs = append(refs, file.Ref)
	}
	return refs
}
