package main

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// The variables that name the Pod of this process, which events are about.
const (
	podNameVariable      = "POD_NAME"
	podNamespaceVariable = "POD_NAMESPACE"
)

// The reasons of events on the Pod.
const (
	reasonReady    = "ECSAnswers"
	reasonNotReady = "ECSDoesNotAnswer"
)

// signedWith says in words where the keys that sign the calls come from.
func (o *options) signedWith(source string) string {
	if o.credentialsDir != "" {
		return fmt.Sprintf("%s and %s of %s (--credentials-dir)", o.credentialsFiles[0], o.credentialsFiles[1], o.credentialsDir)
	}
	return "credentials of the source " + source
}

// newTeller returns what tells with an event on the Pod of this process whether
// ECS answers it. Where there is no Pod or no API server it tells nobody.
func newTeller(o *options) (func(error), error) {
	pod := &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Name: os.Getenv(podNameVariable), Namespace: os.Getenv(podNamespaceVariable)}
	nobody := func(error) {}
	if pod.Name == "" || pod.Namespace == "" {
		return nobody, nil
	}
	client, _, err := o.optionalClient()
	if client == nil {
		return nobody, err
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(pod.Namespace)})
	return tellOn(broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "disk-driver"}), pod), nil
}

// tellOn says it on one Pod. That all is well from the beginning is no news.
func tellOn(recorder record.EventRecorder, pod *corev1.ObjectReference) func(error) {
	failed := false
	return func(err error) {
		switch {
		case err != nil:
			recorder.Event(pod, corev1.EventTypeWarning, reasonNotReady, err.Error())
		case failed:
			recorder.Event(pod, corev1.EventTypeNormal, reasonReady, "ECS answers; the driver is ready")
		}
		failed = err != nil
	}
}
