package provisioner

import "context"

// noJournal keeps no record, for a process without a namespace.
type noJournal struct{}

func (noJournal) Put(context.Context, string, []byte) error { return nil }
func (noJournal) Delete(string)                             {}
func (noJournal) Flush(context.Context, string) error       { return nil }
func (noJournal) EndRequest(string) string                  { return "" }
func (noJournal) RejectEnd(string)                          {}
func (noJournal) Size() int                                 { return 0 }
