package perdure_test

// kernelGuards are those of starts, claims, suspensions and answers.
var kernelGuards = []guard{
	{
		name: "change announces before it appends",
		edits: []edit{{"thread.go", `		if err := c.announce(ctx, name, t.Seq+1, flows...); err != nil {
			return o, nil, err
		}
		err = c.append(ctx, name, t, data)`, `		if OFF {
			if err = c.append(ctx, name, t, data); err == nil {
				err = c.announce(ctx, name, t.Seq+1, flows...)
			}
		} else if err := c.announce(ctx, name, t.Seq+1, flows...); err != nil {
			return o, nil, err
		} else {
			err = c.append(ctx, name, t, data)
		}`}},
		test: "^TestExploredAnswerIsNeverMissed$/^waking,_a_crash$", says: "the run is suspended",
	},
}
