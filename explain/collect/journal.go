package collect

import (
	"context"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
)

// readJournal reads disk-provisioner's records of claims that have no volume. The journal is where its Lease is, which readLease has found.
func (r *reader) readJournal(ctx context.Context) {
	waiting := map[string]bool{}
	for _, claim := range r.claims.all() {
		if claim.Spec.VolumeName == "" {
			waiting[string(claim.UID)] = true
		}
	}
	if len(waiting) == 0 {
		return
	}
	for _, l := range r.leases.all() {
		if l.Name == request.ObjectName(r.driver) {
			r.readJournalIn(ctx, l.Namespace, waiting)
		}
	}
}

// readJournalIn reads the records of the claims, whose UIDs are given, of the journal of one namespace.
func (r *reader) readJournalIn(ctx context.Context, namespace string, claims map[string]bool) {
	records, err := journal.New(r.Kube, nil, namespace, request.JournalName(r.driver), func() {}).Load(ctx)
	if err != nil {
		r.noteError(configMap, namespace, err)
		return
	}
	for uid, record := range records {
		if !claims[uid] {
			continue
		}
		q, err := request.Decode(record)
		if err != nil {
			r.note(configMap, namespace, "the journal's record of claim "+uid+" can't be read: "+err.Error())
			continue
		}
		r.addRequest(explain.Request{ClaimUID: uid, Namespace: q.Claim.Namespace, Claim: q.Claim.Name, Node: q.Node})
	}
}

func (r *reader) addRequest(q explain.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal = append(r.journal, q)
}
