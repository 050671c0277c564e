package perdure

// Damaged is the status of a thread in a list in which someone has found damage:
// see [Runtime.Verify].
const Damaged Status = "damaged"
