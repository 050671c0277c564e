package journal

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/blob"
)

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
