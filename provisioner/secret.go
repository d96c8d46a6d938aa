package provisioner

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// secrets reads Secrets from the API server for each call, so that none stays in memory.
type secrets struct{ client kubernetes.Interface }

// Read returns the data of a Secret, nothing for no reference.
func (s *secrets) Read(ctx context.Context, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := s.client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, watch.ReadError(watch.Object{Resource: watch.Secrets, Namespace: ref.Namespace, Name: ref.Name}, err)
	}
	data := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data, nil
}
