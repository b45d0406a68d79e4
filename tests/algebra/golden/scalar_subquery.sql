-- SELECT a, b FROM r WHERE b > (SELECT avg(y) FROM s)

-- @1: sums, key none, changes paired
SELECT
  `avg`,
  `_hw_rows`,
  `_hw_avg_count`,
  `_hw_avg_sum`,
  `_hw_old_avg`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_avg_count`,
  `_hw_old__hw_avg_sum`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    (
      CASE
        WHEN `_hw_avg_count` = 0
        THEN NULL
        ELSE CAST(`_hw_avg_sum` AS DOUBLE) / `_hw_avg_count`
      END
    ) AS `avg`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_avg_count` AS `_hw_avg_count`,
    `_hw_avg_sum` AS `_hw_avg_sum`,
    `_hw_old_avg` AS `_hw_old_avg`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_avg_count` AS `_hw_old__hw_avg_count`,
    `_hw_old__hw_avg_sum` AS `_hw_old__hw_avg_sum`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    TRUE AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      CAST((
        COALESCE(`_hw_old__hw_avg_count`, 0) + COALESCE(`_hw_d__hw_avg_count`, 0)
      ) AS BIGINT) AS `_hw_avg_count`,
      CAST(CASE
        WHEN (
          COALESCE(`_hw_old__hw_avg_count`, 0) + COALESCE(`_hw_d__hw_avg_count`, 0)
        ) = 0
        THEN NULL
        ELSE (
          COALESCE(`_hw_old__hw_avg_sum`, 0) + COALESCE(`_hw_d__hw_avg_sum`, 0)
        )
      END AS DECIMAL(38, 0)) AS `_hw_avg_sum`,
      `_hw_old_avg` AS `_hw_old_avg`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_avg_count` AS `_hw_old__hw_avg_count`,
      `_hw_old__hw_avg_sum` AS `_hw_old__hw_avg_sum`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `_hw_d__hw_rows`,
        `_hw_d__hw_avg_count`,
        `_hw_d__hw_avg_sum`,
        `_hw_old_avg`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_avg_count`,
        `_hw_old__hw_avg_sum`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          SUM(`_hw_w`) AS `_hw_d__hw_rows`,
          SUM(CASE WHEN NOT CAST(`y` AS DECIMAL(20, 0)) IS NULL THEN `_hw_w` ELSE 0 END) AS `_hw_d__hw_avg_count`,
          SUM(
            CASE
              WHEN `_hw_w` < 0
              THEN -(
                CAST(`y` AS DECIMAL(20, 0))
              )
              ELSE CAST(`y` AS DECIMAL(20, 0))
            END
          ) AS `_hw_d__hw_avg_sum`
        FROM (
          SELECT
            `y` AS `y`,
            `rowid` AS `s_rowid`,
            `_hw_w`
          FROM `s@delta`
        ) AS _t
      ) AS _l
      LEFT JOIN (
        SELECT
          `avg` AS `_hw_old_avg`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_avg_count` AS `_hw_old__hw_avg_count`,
          `_hw_avg_sum` AS `_hw_old__hw_avg_sum`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@1@old`
      ) AS _r
        ON TRUE
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
        AND `_hw_avg_count` IS NOT DISTINCT FROM `_hw_old__hw_avg_count`
        AND `_hw_avg_sum` IS NOT DISTINCT FROM `_hw_old__hw_avg_sum`
      )
    )
  )

-- @: rows, key _hw_key_1, changes signed
SELECT
  `a` AS `a`,
  `b` AS `b`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `b`,
    `_hw_key_1`,
    `_hw_old__hw_key_1`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `b`,
      `_hw_key_1`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a` AS `a`,
        `b` AS `b`,
        `r_rowid` AS `_hw_key_1`,
        `_hw_w`
      FROM (
        SELECT
          `a` AS `a`,
          `b` AS `b`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `avg`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a`,
              `b`,
              `avg`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _l
            INNER JOIN (
              SELECT
                `avg` AS `avg`
              FROM `@1@old`
            ) AS _r
              ON `b` > `avg`
          ) AS _t
          UNION ALL
          SELECT
            `a`,
            `b`,
            `avg`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `avg`,
              `a`,
              `b`,
              `r_rowid`,
              `_hw_w`
            FROM (
              SELECT
                `avg` AS `avg`,
                `_hw_w`
              FROM `@1@delta`
            ) AS _l
            INNER JOIN (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`
              FROM `r@new`
            ) AS _r
              ON `b` > `avg`
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `b`,
      `_hw_key_1`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
) AS _t
