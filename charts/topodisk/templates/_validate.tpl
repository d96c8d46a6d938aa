{{/*
Fails the installation for values that no schema can judge: each is named, with an example,
and all of them at once.
*/}}
{{- define "topodisk.validate" -}}
{{- $wrong := list -}}
{{- if not .Values.region -}}
{{- $wrong = append $wrong "region is not set: the region of the cluster's ECS instances, for example --set region=cn-hangzhou" -}}
{{- end -}}
{{- if not (include "topodisk.clusterID" .) -}}
{{- $wrong = append $wrong "clusterID is not set, and without a cluster (helm template, --dry-run=client) the UID of its namespace kube-system cannot be looked up: for example --set clusterID=\"$(kubectl get namespace kube-system -o jsonpath='{.metadata.uid}')\"" -}}
{{- end -}}
{{- if not .Values.image.repository -}}
{{- $wrong = append $wrong "image.repository is not set: where the image built from the Dockerfile was pushed to, for example --set image.repository=registry.example.com/storage/topodisk" -}}
{{- end -}}
{{- if not .Values.credentials.existingSecret -}}
{{- $wrong = append $wrong (printf "credentials.existingSecret is not set: a Secret of namespace %s with the keys %s and %s, for example --set credentials.existingSecret=topodisk-credentials" .Release.Namespace .Values.credentials.keys.accessKeyID .Values.credentials.keys.accessKeySecret) -}}
{{- end -}}
{{- if and (gt (int .Values.controller.replicas) 1) (not .Values.diskProvisioner.leaderElection) -}}
{{- $wrong = append $wrong (printf "diskProvisioner.leaderElection is false with controller.replicas %d: two provisioners would work on the same claims; set controller.replicas=1 or diskProvisioner.leaderElection=true" (int .Values.controller.replicas)) -}}
{{- end -}}
{{- if eq .Values.diskDriver.httpEndpoint .Values.diskProvisioner.httpEndpoint -}}
{{- $wrong = append $wrong (printf "diskDriver.httpEndpoint and diskProvisioner.httpEndpoint are both %s: the containers share the Pod's address, so set two ports, for example :9808 and :9809" .Values.diskDriver.httpEndpoint) -}}
{{- end -}}
{{- range .Values.rbac.provisionerSecrets -}}
{{- if and (has "*" .names) (gt (len .names) 1) -}}
{{- $wrong = append $wrong (printf "rbac.provisionerSecrets of namespace %s has \"*\" beside names: either \"*\" alone or names" .namespace) -}}
{{- end -}}
{{- end -}}
{{- $namespaces := list -}}
{{- range .Values.rbac.provisionerSecrets -}}
{{- if has .namespace $namespaces -}}
{{- $wrong = append $wrong (printf "rbac.provisionerSecrets has namespace %s twice: put all its names into one entry" .namespace) -}}
{{- end -}}
{{- $namespaces = append $namespaces .namespace -}}
{{- end -}}
{{- $defaults := list -}}
{{- $classes := list -}}
{{- range .Values.storageClasses -}}
{{- if has .name $classes -}}
{{- $wrong = append $wrong (printf "storageClasses has the name %s twice" .name) -}}
{{- end -}}
{{- $classes = append $classes .name -}}
{{- if .default -}}{{- $defaults = append $defaults .name -}}{{- end -}}
{{- end -}}
{{- if gt (len $defaults) 1 -}}
{{- $wrong = append $wrong (printf "storageClasses has %d defaults (%s): a cluster has one" (len $defaults) (join ", " $defaults)) -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n- %s" (join "\n- " $wrong)) -}}
{{- end -}}
{{- end -}}
