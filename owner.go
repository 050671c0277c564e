package perdure

// User returns the same runtime, limited to the threads that a user of the
// tenant owns. Those of others are as if they were not there, whether they are
// named by the id of a thread or of an ask; only that an id is taken is seen,
// when a thread is made: ErrExists. What it makes belongs to the user.
func (r *Runtime) User(user string) *Runtime {
	t := *r.tenant
	t.Owner = &user
	return r.core.runtime(&t)
}
