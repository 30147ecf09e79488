# Each row below the directory that it lies in.
for file in out/per_sensor/*/*/*.csv; do sed "s#^#$(dirname "$file") #" "$file"; done | sort
