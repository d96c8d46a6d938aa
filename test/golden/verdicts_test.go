package golden

import (
	"strings"
	"testing"
)

var held = VerdictCase{
	Subject: "volumeattachment", Cause: "HeldByFinalizer", Actor: "cluster-admin", Retried: "never",
	Evidence: []string{"VolumeAttachment metadata.finalizers", "Node status.conditions or spec.taints or Pod spec.nodeName"},
	Next:     []string{"kubectl get volumeattachment NAME --output yaml", "kubectl get nodes --selector zone="},
}

const fits = `{"subject":{"kind":"VolumeAttachment","name":"csi-a"},"state":"Waits","cause":"HeldByFinalizer","message":"It is held.",
"evidence":[{"object":{"kind":"VolumeAttachment","name":"csi-a"},"field":"metadata.finalizers[0]","value":"x"},
{"object":{"kind":"Node","name":"a"},"field":"spec.taints","value":"y"}],
"actor":"cluster-admin","next":["kubectl get nodes --selector zone=h","kubectl get volumeattachment csi-a --output yaml"],"retried":"never"}`

func TestVerdictIsChecked(t *testing.T) {
	for _, test := range []struct{ name, old, new, says string }{
		{"all is as wanted", "", "", ""},
		{"another object of the evidence", `"kind":"Node","name":"a"},"field":"spec.taints"`, `"kind":"Pod","name":"a"},"field":"spec.nodeName"`, ""},
		{"subject", `"kind":"VolumeAttachment","name":"csi-a"},"state"`, `"kind":"Pod","name":"csi-a"},"state"`, `subject is "pod"`},
		{"state", "Waits", "Unknown", `state is "Unknown"`},
		{"cause", "HeldByFinalizer", "BeingDetached", `cause is "BeingDetached"`},
		{"actor", "cluster-admin", "user", `actor is "user"`},
		{"retried", "never", "soon", `retried is "soon"`},
		{"message", "It is held.", "", "there is no message"},
		{"evidence of another kind", `"kind":"Node","name":"a"`, `"kind":"CSINode","name":"a"`, "no evidence is Node status.conditions"},
		{"evidence of another field", "metadata.finalizers[0]", "metadata.finalizersOfOthers", "no evidence is VolumeAttachment metadata.finalizers"},
		{"another command", "volumeattachment csi-a --output yaml", "volumeattachment csi-a --output json", "no command begins"},
		{"a shorter command", "kubectl get nodes --selector zone=h", "kubectl get nodes", "no command begins"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, err := ParseVerdict([]byte(strings.Replace(fits, test.old, test.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			err = held.Check(v)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q", err, test.says)
			}
		})
	}
}

func TestEvidenceStandsForOneThatIsWanted(t *testing.T) {
	v, err := ParseVerdict([]byte(fits))
	if err != nil {
		t.Fatal(err)
	}
	twice := []string{"Node spec.taints", "Node spec.taints"}
	if missing := v.Lacks(twice); len(missing) != 1 {
		t.Errorf("missing are %q, want one", missing)
	}
}
