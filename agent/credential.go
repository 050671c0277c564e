package agent

// Credential is a secret that a tool needs, such as a login.
type Credential struct {
	Name   string   // the same name is the same secret, for all threads of one user
	Prompt string   // what the person reads who is asked for it
	Who    []string // who may give it; nil: anyone
}

// Needs says that the tool needs credentials. A call waits until all are there;
// the tool gets them with [Secret].
func Needs(c ...Credential) ToolOption {
	return func(t *tool) { t.needs = append(t.needs[:len(t.needs):len(t.needs)], c...) }
}
