package threads

// Seam lets packages of this module that build on the kernel reach the threads
// behind a runtime. A *perdure.Runtime embeds one; its method has a name that no
// other package can call.
type Seam struct{ tenant *Tenant }

// NewSeam returns the seam to the threads of a tenant.
func NewSeam(t *Tenant) Seam { return Seam{t} }

func (s Seam) behind() *Tenant { return s.tenant }

// Behind returns the threads behind a *perdure.Runtime, nil for anything else.
func Behind(runtime any) *Tenant {
	if s, ok := runtime.(interface{ behind() *Tenant }); ok {
		return s.behind()
	}
	return nil
}
