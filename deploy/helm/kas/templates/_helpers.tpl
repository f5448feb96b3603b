{{- define "kas.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kas.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kas.labels" -}}
{{ include "kas.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kas.configuration" -}}
agent:
  listen:
    address: ":8150"
    certificate_file: /config/tls/tls.crt
    key_file: /config/tls/tls.key
  kubernetes_api:
    listen:
      address: ":8154"
      certificate_file: /config/tls/tls.crt
      key_file: /config/tls/tls.key
observability:
  listen:
    address: ":8151"
private_api:
  listen:
    address: ":8155"
    certificate_file: /config/tls/tls.crt
    key_file: /config/tls/tls.key
    ca_certificate_file: /config/tls/ca.crt
    authentication_secret_file: /config/secrets/private-api-secret
{{- with .Values.redis }}
{{- if .address }}
redis:
  server:
    address: {{ .address | quote }}
  {{- with .username }}
  username: {{ . | quote }}
  {{- end }}
  {{- if .passwordSecret }}
  password_file: /config/redis/{{ .passwordKey }}
  {{- end }}
  {{- if .tls.enabled }}
  tls:
    enabled: true
    {{- if .tls.caSecret }}
    ca_certificate_file: /config/redis-ca/ca.crt
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}
